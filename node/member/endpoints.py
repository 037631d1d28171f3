"""The HTTP endpoints of a member: a table of small functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from stormcast.node.control.answers import (
    Answer,
    Handler,
    RefusedError,
    Table,
    as_json,
    parse_body,
    parse_mapping,
)
from stormcast.node.core.errors import NodeError
from stormcast.node.core.model import Address
from stormcast.node.member import commands
from stormcast.node.member.asked import AskedMember, Measured
from stormcast.node.member.commands import NOT_RUNNING, running
from stormcast.node.member.loads import read_loads

if TYPE_CHECKING:
    from stormcast.node.member.metrics import Metrics

NOT_READY: Final = 503
ACCEPTED: Final = 202


def endpoints(member: AskedMember) -> Table:
    """Return the handlers by path and method."""
    return {
        "/livez": {"GET": lambda _: as_json({"live": True})},
        "/readyz": {"GET": lambda _: _ready(member)},
        "/metrics": {"GET": metrics_handler(member)},
        "/state": {"GET": lambda _: as_json(state(member))},
        "/attributes": {"POST": lambda body: _set_attributes(member, body)},
        "/workload": {
            "GET": lambda _: as_json(_workload(member)),
            "POST": lambda body: _start_workload(member, body),
        },
        "/workload/stop": {"POST": lambda _: as_json({"stopped": member.driver.stop()})},
        "/probes": {
            "GET": lambda _: as_json(running(member).stack.test_protocols()),
            "POST": lambda body: _set_test_protocols(member, body),
        },
        "/consume": {"POST": lambda body: _consume(member, body)},
        "/peers": {"POST": lambda body: commands.set_peers(member, body)},
        "/view": {"POST": lambda body: commands.install_view(member, body)},
        "/forget": {"POST": lambda body: commands.forget(member, body)},
        "/close": {"POST": lambda body: commands.close(member, body)},
        "/journal/forget": {"POST": lambda body: commands.forget_events(member, body)},
        "/gauge": {"POST": lambda _: commands.gauge(member)},
        "/leave": {"POST": lambda _: _leave(member)},
    }


# -- What it is ----------------------------------------------------------------------------------


def state(member: AskedMember) -> dict[str, Any]:
    """Return everything that `GET /state` shows of a member."""
    channel, view = member.channel, member.view
    runtime = channel.runtime
    # Before the member is bound it has no address.
    me = _plain(member.me) if member.me is not None else {"name": member.name}
    journal = runtime.journal
    return {
        **me,
        "cluster": member.settings.cluster,
        "stack": member.settings.stack.name,
        "timing": member.settings.stack.timing.name,
        "state": channel.state,
        "view": None
        if view is None
        else {
            "id": str(view.id),
            "number": view.id.number,
            "coordinator": view.coordinator.name,
            "members": [_plain(address) for address in view.members],
        },
        "stats": member.stats(),
        "workload": _workload(member),
        "probes": runtime.stack.test_protocols() if runtime.is_running else [],
        "keys": runtime.stack.keys if runtime.is_running else [],
        "bound": member.bound,
        "journal": str(journal.directory) if journal is not None else None,
        "journal_trouble": journal.trouble if journal is not None else "",
    }


def _plain(address: Address) -> dict[str, str]:
    return {
        "name": address.name,
        "short": f"{address.short:08x}",
        "identity": f"{address.identity:032x}",
        "where": address.where,
    }


def _workload(member: AskedMember) -> dict[str, object]:
    told = member.driver.state() | member.receiver.state()
    runtime = member.channel.runtime
    pending = runtime.stack.outbox.pending if runtime.is_running else (lambda _dest: 0)
    waiting = {dest: pending(int(dest, 16)) for dest in member.driver.sent_to()}
    return told | {
        "waiting": {dest: number for dest, number in waiting.items() if number},
        "unfinished_bytes": runtime.stack.unfinished_bytes if runtime.is_running else 0,
        "standing_gaps": runtime.stack.standing_gaps if runtime.is_running else 0,
    }


def _ready(member: AskedMember) -> Answer:
    is_ready = member.is_connected
    return as_json(
        {"ready": is_ready, "state": member.channel.state}, 200 if is_ready else NOT_READY
    )


def metrics_handler(subject: Measured) -> Handler:
    """Return a handler that answers a scrape with the metrics."""
    made: list[Metrics] = []

    def answer(_body: object) -> Answer:
        if not made:
            # Imported at the first scrape: without one a member need not pay for the library.
            from stormcast.node.member.metrics import Metrics  # noqa: PLC0415 an extra

            made.append(Metrics(subject))
        return Answer(made[0].text(), content_type=made[0].content_type)

    return answer


# -- What it is told -----------------------------------------------------------------------------


def _set_attributes(member: AskedMember, body: object) -> Answer:
    """Change settings by name, one after the other."""
    values = parse_mapping(body, '{"NAKACK2.xmit_interval": "500ms"}')
    running(member)
    done = _set_each(values, member.channel.set_attribute)
    member.say(f"settings changed: {', '.join(f'{name} {values[name]}' for name in done)}")
    return as_json({"set": done})


def _set_each(values: Mapping[str, Any], put: Callable[[str, Any], None]) -> list[str]:
    """Set one value after the other, and return their names; the error for a value that is refused
    says which were set before it."""
    done: list[str] = []
    for name, value in values.items():
        try:
            put(name, value)
        except NodeError as error:
            before = f"; set before it: {', '.join(done)}" if done else ""
            raise RefusedError(400, f"{error}{before}") from None
        done.append(name)
    return done


def _start_workload(member: AskedMember, body: object) -> Answer:
    loads = read_loads(parse_body(body))
    running(member)
    if not member.is_connected:
        raise RefusedError(NOT_RUNNING, f"the member is {member.channel.state}")
    member.add_loads(loads)
    return as_json(_workload(member), ACCEPTED)


def _set_test_protocols(member: AskedMember, body: object) -> Answer:
    """Change test protocols by name: settings insert or change one, null removes it."""
    values = parse_mapping(body, '{"DISCARD": {"up": 0.1}}, or {"DISCARD": null}')
    runtime = running(member)

    def put(name: str, given: object) -> None:
        if given is not None and not isinstance(given, dict):
            raise RefusedError(
                400, f"{name} is {given!r}: write its settings as a mapping, or null"
            )
        settings = dict(given) if given is not None else None
        above = str(settings.pop("above", "")) if settings is not None else ""
        runtime.stack.set_test_protocol(name, settings, runtime.now(), above)
        runtime.wake()

    _set_each(values, put)
    names = ", ".join(str(one["name"]) for one in runtime.stack.test_protocols())
    member.say(f"test protocols: {names or '-'}")
    losing = runtime.stack.unrepaired_test_protocols()
    if losing:
        member.say(
            f"{', '.join(losing)} stands below NAKACK2, whose xmit_interval is 0: what it loses "
            "there is asked for only when gap_alarm is over"
        )
    return as_json(runtime.stack.test_protocols())


def _consume(member: AskedMember, body: object) -> Answer:
    consuming = parse_mapping(body, '{"consuming": false}').get("consuming")
    if not isinstance(consuming, bool):
        raise RefusedError(400, f"consuming is {consuming!r}: write true or false")
    running(member)
    waited = member.channel.set_consuming(consuming)
    return as_json({"consuming": consuming, "waited": waited})


def _leave(member: AskedMember) -> Answer:
    member.leave()
    return as_json({"leaving": True}, ACCEPTED)
