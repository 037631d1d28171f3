"""One round: a group under load, a range of hostile frames, and what became of both.

In a round against a group with keys (`keyed`) everything is asked for, whatever is sent. In a round
of `plain` frames none has power over a group without keys, so everything is asked for:
nobody ends, memory and descriptors stay, each refusal that follows from the bytes is counted, the
view stays, and all guarantees hold. In a round of `forged` frames members are believed to have sent
some of them. Without keys the view and the messages are then the attacker's: the round says how
often the view changed, and asks for the rest.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from math import ceil
from pathlib import Path
from typing import Any, Final, Self

from stormcast.chaos.backends.base import BackendError, MemberError
from stormcast.chaos.oracles.verdict import Verdict
from stormcast.chaos.plugin.live_cluster import VerdictError
from stormcast.chaos.soak.drift import WARM_UP, Samples, Slope, slope_of
from tests.fuzz.datagrams import FILTERED
from tests.fuzz.facts import Facts, counterparts, translated
from tests.fuzz.frames import CHUNK
from tests.fuzz.groups import BY_NAME, NAMES, Attacker, Siege, Target, descriptors
from tests.fuzz.reading import FORESEEN
from tests.fuzz.streams import COUNTERS, UNASKED
from tests.fuzz.tallies import Tally

PLAIN: Final = "plain"
FORGED: Final = "forged"
KEYED: Final = "keyed"
MIB: Final = 1 << 20
LEAK: Final = 8.0
"""Bytes per frame that a process got. The least that could be kept of one, an entry of a table, is
larger."""
NOISE: Final = 4 * MIB
"""Growth in a round that says nothing: an allocator takes a lot at once."""
CYCLES: Final = 4 * MIB
"""More of it, where connections end: what is left of one waits for the collector, which in a member
looks only after 50,000 objects."""
BLOCKS: Final = 48
"""Samples of memory in a round."""
LEAST_BLOCK: Final = 64
"""Chunks sent between two looks at the members, at least."""
MOST_DESCRIPTORS: Final = 8
"""More than before a round: connections that members make among themselves."""
LISTEN_SECONDS: Final = 2.0
END_LOOKS: Final = 30
END_PAUSE: Final = 0.5
"""Looks, and seconds between them, whether a member ends whose departure was seen."""
SETTLE_LOOKS: Final = 30
"""Looks at the counters, a second apart, until they fit what was sent."""
ANSWER_TRIES: Final = 6
FILE_LOOKS: Final = 20
"""Looks at the descriptors, half a second apart, until those of the attacker have ended."""
LEAST_RATE: Final = 200.0
ECHO: Final = "replayed"
ECHO_SECONDS: Final = 0.5
"""A member says by multicast what MERGE3 tells others, and at once to each place where it expects
somebody, in one seal: who hears both refuses the second. With the timing `fast` no sooner again."""

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """A range of frames for one target."""

    target: str
    part: str
    seed: int
    first: int
    """The first frame; a multiple of CHUNK, as is `count`."""
    count: int
    settings: tuple[str, ...] = ()
    """Settings of protocols for all members, each as PROTOCOL.key=value."""

    @property
    def is_keyed(self) -> bool:
        """Whether members have a key: then nothing is forgiven."""
        return self.part == KEYED

    @property
    def key(self) -> str:
        """The name of the round, and of its folder."""
        return f"{self.target}-{self.part}-{self.first}"


@dataclass(slots=True, kw_only=True)
class Result:
    """What a round found."""

    round: Round
    sent: dict[str, int] = field(default_factory=dict)
    powers: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    """By reason, of all members together, while the attack lasted."""
    foreseen: int = 0
    """Refusals that had to be counted."""
    lost: int = 0
    """Datagrams that the kernel dropped for a full buffer."""
    memory: dict[str, tuple[int, int, float, float]] = field(default_factory=dict)
    """By process: bytes before and after, bytes per frame that it got, and the lower bound of
    these."""
    views: int = 0
    """How often a member was seen with another view than before."""
    verdict: str = ""
    seconds: float = 0.0
    findings: list[str] = field(default_factory=list)
    repeat: str = ""
    """The command that sends the smallest range again that was seen to find this."""

    def as_words(self) -> dict[str, Any]:
        """Return all of it as JSON has it."""
        return asdict(self)

    @classmethod
    def from_words(cls, words: dict[str, Any]) -> Self:
        """Read what `as_words` returned."""
        memory = {name: tuple(values) for name, values in words["memory"].items()}
        round_ = words["round"]
        played = Round(**{**round_, "settings": tuple(round_["settings"])})
        return cls(**{**words, "round": played, "memory": memory})


def play(target: Target, round_: Round, folder: Path, tell: Tell, facts: Path | None) -> Result:
    """Play a round; BackendError or OSError if this machine cannot. `facts` are those of an earlier
    round, whose recorded frames are sent again."""
    begun = time.monotonic()
    with Siege(target, folder, round_.seed, round_.settings, is_keyed=round_.is_keyed) as siege:
        result = attack(siege, round_, tell, facts)
        judge(siege, result)
    result.seconds = round(time.monotonic() - begun, 1)
    return result


def attack(siege: Siege, round_: Round, tell: Tell, facts: Path | None = None) -> Result:
    """Send the frames of a round to a group, and look at it meanwhile."""
    result = Result(round=round_)
    with Attacker(siege, _order(siege, round_, facts)) as attacker:
        assault = Assault(siege, attacker, result, tell)
        assault.run()
    assault.count_files()
    return result


def _order(siege: Siege, round_: Round, earlier: Path | None) -> dict[str, Any]:
    by = BY_NAME[round_.target].by
    order: dict[str, Any] = {"by": by, "seed": round_.seed}
    if by == "requests":
        return {**order, "door": asdict(siege.door(round_.target))}
    known = Facts.load(earlier) if earlier is not None else None
    facts = siege.facts(LISTEN_SECONDS if known is None or round_.is_keyed else 0.0)
    if round_.is_keyed and not facts.keys:
        raise BackendError("members of this group seal nothing: it has no key")
    if known is not None:
        again = counterparts if round_.is_keyed else translated
        facts = replace(facts, corpus=again(known.corpus, known, facts))
    path = siege.folder / "facts.json"
    facts.save(path)
    is_defused = round_.part == PLAIN
    known_by = {"facts": str(path), "address": siege.address, "is_defused": is_defused}
    return {**order, **known_by}


class MuteError(BackendError):
    """A member does not answer, though it runs."""


class Assault:
    """Sends the frames of a round in blocks, and looks at the members after each."""

    def __init__(self, siege: Siege, attacker: Attacker, result: Result, tell: Tell) -> None:
        self._siege = siege
        self._group = siege.group
        self._attacker = attacker
        self._result = result
        self._tell = tell
        self._tally = Tally()
        self._samples: dict[str, list[tuple[float, float]]] = {}
        target = BY_NAME[result.round.target]
        self._begun = time.monotonic()
        self._has_echoes = result.round.is_keyed and target.stack == "udp"
        self._hearers = 1 if target.by == "requests" else len(NAMES)
        """How many take turns to be sent to."""
        self._noise = NOISE if target.by == "datagrams" else NOISE + CYCLES
        self._views = self._held()
        self._before = self._counters()
        self._files = {name: descriptors(one.pid) for name, one in siege.processes().items()}

    def run(self) -> None:
        """Send everything, unless a process ends or is mute."""
        try:
            self._send_all()
            self._conclude()
        except BackendError as error:
            # Whoever ends because of a bug leaves first, and is not to be asked any more.
            self._wait_for_ends()
            if self._all_live():
                if not isinstance(error, MuteError):
                    raise
                self._result.findings.append(str(error))

    def _send_all(self) -> None:
        round_ = self._result.round
        target = BY_NAME[round_.target]
        chunks, at = round_.count // CHUNK, round_.first // CHUNK
        block = max(LEAST_BLOCK, -(-chunks // BLOCKS))
        end, rate = at + chunks, target.rate
        self._sample()
        while at < end and not self._result.findings:
            size = min(block, end - at)
            lost = self._result.lost
            self._send(at, size, rate)
            at += size
            if not self._all_live():
                break
            self._look()
            # Slower where the kernel had to drop: what is dropped there proves nothing.
            is_lossy = self._result.lost > lost
            rate = max(LEAST_RATE, rate / 2) if is_lossy else min(target.rate, rate * 1.2)
            done = at - round_.first // CHUNK
            self._tell(f"{round_.key}: {done * CHUNK} of {round_.count} frames")

    def _send(self, first: int, count: int, rate: float) -> None:
        self._attacker.ask(first, count, rate)
        while not self._attacker.has_answered():
            self._group.wait(0.05)
        self._tally.add(self._attacker.tally())

    # -- Looking ---------------------------------------------------------------------------------

    def _all_live(self) -> bool:
        ended = ends(self._siege)
        known = self._result.findings
        known += [one for one in ended if one not in known]
        return not ended

    def _look(self) -> None:
        self._sample()
        held = self._held()
        self._result.views += sum(held[name] != self._views[name] for name in held)
        self._views = held
        counted = self._counters()
        dropped = _sum(counted, "transport.kernel_drops") - _sum(
            self._before, "transport.kernel_drops"
        )
        filtered = sum(counts[FILTERED] for counts in self._tally.certain.values())
        self._result.lost = max(0, dropped - filtered)

    def _sample(self) -> None:
        sent = self._tally.sent["frames"] / self._hearers
        for name, process in self._siege.processes().items():
            # Who has just ended has no memory; the next look at the processes finds that.
            with suppress(ProcessLookupError, FileNotFoundError):
                self._samples.setdefault(name, []).append((sent, float(process.rss())))

    def _state(self, name: str) -> Mapping[str, Any]:
        for _ in range(ANSWER_TRIES):
            try:
                return self._group.state(name)
            except MemberError as error:
                said = str(error)
        raise MuteError(f"{name} does not answer: {said}")

    def _held(self) -> dict[str, str]:
        return {name: str((self._state(name)["view"] or {}).get("id")) for name in NAMES}

    def _counters(self) -> dict[str, dict[str, int]]:
        return {name: self._state(name)["stats"] for name in NAMES}

    # -- What is asked of every round ------------------------------------------------------------

    def _conclude(self) -> None:
        result, tally = self._result, self._tally
        result.sent, result.powers = dict(tally.sent), dict(+tally.powers)
        result.findings += [f"frame {number}: {what}" for number, what in tally.findings]
        if not self._all_live():
            return
        for left in reversed(range(SETTLE_LOOKS)):
            self._group.wait(1.0)
            self._look()
            wrong = self._account(self._counters())
            # What was sent last may not have been read yet, where a machine is busy.
            if not wrong or not left:
                result.findings += wrong
                break
        if result.views and result.round.part != FORGED:
            self._wait_for_ends()
        for name, samples in self._samples.items():
            self._weigh(name, samples)

    def _wait_for_ends(self) -> None:
        """Wait for the end of members that leave because of a bug: the others have a view without
        them before."""
        for _ in range(END_LOOKS):
            if not self._all_live():
                break
            time.sleep(END_PAUSE)

    def _account(self, after: Mapping[str, Mapping[str, int]]) -> list[str]:
        """Compare what members counted with what follows from the bytes that were sent; returns
        what does not fit."""
        result, total, wrong = self._result, Counter[str](), list[str]()
        result.foreseen = 0
        echoes = 0
        if self._has_echoes:
            seconds = time.monotonic() - self._begun
            echoes = (len(NAMES) - 1) * int(seconds / ECHO_SECONDS + 2)
        for name, counted in after.items():
            before = self._before[name]
            refused = {
                key.removeprefix("stack.refused."): number - before.get(key, 0)
                for key, number in counted.items()
                if key.startswith(("stack.refused.", *COUNTERS))
            }
            total.update(refused)
            certain = self._tally.certain.get(name, Counter())
            possible = self._tally.possible.get(name, Counter())
            sent = certain.keys() | possible.keys()
            known = (*FORESEEN, *sorted(why for why in sent if why.startswith(COUNTERS)))
            result.foreseen += sum(certain[why] for why in known if why != UNASKED)
            for why in known:
                found, least = refused.get(why, 0), certain[why] - result.lost
                most = certain[why] + possible[why] + (echoes if why == ECHO else 0)
                if not least <= found <= most:
                    wrong.append(
                        f"{name} counted {found} refusals for {why}, not {least} to {most}"
                    )
        result.refused = {why: number for why, number in total.most_common() if number}
        return wrong

    def _weigh(self, name: str, samples: list[tuple[float, float]]) -> None:
        counted = after_warm_up(samples)
        slope = slope_of(counted)
        self._result.memory[name] = (
            int(samples[0][1]),
            int(samples[-1][1]),
            round(slope.value, 3),
            round(max(slope.lower, -1e9), 3),
        )
        frames = counted[-1][0] - counted[0][0]
        if leaks(slope, frames, self._noise):
            self._result.findings.append(
                f"memory of {name} grows by {slope.value:.1f} bytes per frame (at least "
                f"{slope.lower:.1f}), from {samples[0][1] / MIB:.1f} to "
                f"{samples[-1][1] / MIB:.1f} MiB"
            )

    def count_files(self) -> None:
        """Compare descriptors with those before, once the attacker's connections have ended."""
        most = {name: number + MOST_DESCRIPTORS for name, number in self._files.items()}
        over: dict[str, int] = {}
        for _ in range(FILE_LOOKS):
            if not self._all_live():
                return
            try:
                now = {name: descriptors(one.pid) for name, one in self._siege.processes().items()}
            except FileNotFoundError:
                # Somebody has just ended.
                continue
            over = {name: number for name, number in now.items() if number > most[name]}
            if not over:
                return
            self._group.wait(0.5)
        for name, number in over.items():
            before = self._files[name]
            self._result.findings.append(f"{name} has {number} descriptors, and had {before}")


def ends(siege: Siege) -> list[str]:
    """Return who has ended, and with which last words."""
    return [
        f"{name} ended with {process.code}: {' | '.join(process.tail(3).splitlines())}"
        for name, process in siege.processes().items()
        if not process.is_alive
    ]


def after_warm_up(samples: Samples) -> list[tuple[float, float]]:
    """Return the samples that count."""
    return list(samples[ceil(WARM_UP * len(samples)) :])


def leaks(slope: Slope, frames: float, noise: float) -> bool:
    """Whether memory grew with the frames: by more than LEAK for each, and `noise` in all."""
    return frames > 0 and slope.is_above(max(LEAK, noise / frames))


def _sum(counters: Mapping[str, Mapping[str, int]], key: str) -> int:
    return sum(int(counted.get(key, 0)) for counted in counters.values())


# -- What is asked where no frame has power --------------------------------------------------------


def judge(siege: Siege, result: Result) -> None:
    """End the group, and judge it, unless members are believed to have sent what was forged."""
    try:
        _judge(siege, result)
    except BackendError:
        found = ends(siege)
        if not found:
            raise
        result.findings += found
        result.verdict = str(Verdict.UNKNOWN)


def _judge(siege: Siege, result: Result) -> None:
    before = len(result.findings)
    group = siege.group
    if result.round.part == FORGED:
        result.verdict = "not asked for"
        return
    if result.views:
        result.findings.append(f"a view changed {result.views} times")
    if len(result.findings) > before or not all(
        process.is_alive for process in siege.processes().values()
    ):
        result.verdict = str(Verdict.UNKNOWN)
        return
    states = {name: group.state(name) for name in NAMES}
    known = {f"{name}:{int(state['short'], 16):x}" for name, state in states.items()}
    for name, state in states.items():
        heard = set(state["workload"]["received_from"])
        if heard != known:
            result.findings.append(f"{name} was given messages of {sorted(heard - known)}")
    group.stop()
    try:
        result.verdict = str(group.finish().verdict)
    except VerdictError as error:
        assert group.outcome is not None
        result.verdict = str(group.outcome.verdict)
        if group.outcome.verdict is Verdict.VIOLATED:
            result.findings.append(" | ".join(str(error).splitlines()[:6]))
