"""The alerts of a soak: what is an alert to Prometheus, and what is none."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helpers.chart import NAMESPACE, RELEASE, render

PROMTOOL = shutil.which("promtool")
OF = f'namespace="{NAMESPACE}", service="{RELEASE}-stormcast-controller"'
GOOD = {
    f'stormcast_soak_windows{{{OF}, verdict="violated"}}': "0x60",
    f'stormcast_soak_spark_chapters{{{OF}, verdict="violated"}}': "0x60",
    f"stormcast_soak_disagreements{{{OF}}}": "0x60",
    f'stormcast_soak_grows{{{OF}, of="n1", figure="memory"}}': "0x60",
    f"stormcast_soak_last_window_timestamp_seconds{{{OF}}}": "0+60x60",
    f"stormcast_soak_over{{{OF}}}": "0x60",
}
"""A window ends each minute, and nothing is wrong."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROMTOOL is None, reason="needs promtool: apt-get install prometheus"),
]


def groups() -> dict[str, Any]:
    chart = render({"soak": {"enabled": True, "alerts": True}})
    (rule,) = chart.of("PrometheusRule")
    spec: dict[str, Any] = rule["spec"]
    return spec


def promtool(folder: Path, *words: str) -> str:
    assert PROMTOOL is not None
    (folder / "rules.yaml").write_text(yaml.safe_dump(groups()))
    done = subprocess.run(
        [PROMTOOL, *words], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_prometheus_understands_them(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text("")
    assert "4 rules found" in promtool(tmp_path, "check", "rules", "rules.yaml")


@pytest.mark.parametrize(
    ("change", "alert"),
    [
        ({}, ""),
        ({'windows{OF, verdict="violated"}': "0x10 1x50"}, "StormcastViolated"),
        ({'spark_chapters{OF, verdict="violated"}': "0x10 1x50"}, "StormcastViolated"),
        ({"disagreements{OF}": "0x10 1x50"}, "StormcastJudgesDisagree"),
        ({'grows{OF, of="n1", figure="memory"}': "0x10 1x50"}, "StormcastGrows"),
        # It grows for a few minutes only.
        ({'grows{OF, of="n1", figure="memory"}': "0x40 1x5 0x15"}, ""),
        ({"last_window_timestamp_seconds{OF}": "0+60x10 600x50"}, "StormcastSoakStandsStill"),
        # Its time is over.
        ({"last_window_timestamp_seconds{OF}": "0+60x10 600x50", "over{OF}": "0x9 1x51"}, ""),
        # The controller is gone.
        ({"over{OF}": "0x10 _x50"}, "StormcastSoakStandsStill"),
    ],
)
def test_what_is_wrong_is_an_alert_and_nothing_else_is(
    tmp_path: Path, change: dict[str, str], alert: str
) -> None:
    series = GOOD | {
        f"stormcast_soak_{name.replace('OF', OF)}": values for name, values in change.items()
    }
    assert len(series) == len(GOOD), "each change is of a series that is there"
    names = [rule["alert"] for group in groups()["groups"] for rule in group["rules"]]
    tests = [
        {
            "interval": "1m",
            "input_series": [{"series": one, "values": values} for one, values in series.items()],
            "promql_expr_test": [
                {
                    "expr": f'count(ALERTS{{alertstate="firing", alertname="{name}"}})',
                    "eval_time": "55m",
                    "exp_samples": [{"labels": "{}", "value": 1}] if name == alert else [],
                }
                for name in names
            ],
        }
    ]
    text = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(text))
    promtool(tmp_path, "test", "rules", "tests.yaml")
