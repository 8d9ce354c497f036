"""Each reason of a condition either calls for a person, and its event is a Warning, or is listed here as no problem."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tdcs.api import conditions
from tdcs.api.conditions import HOLDING_UP_PODS, RELOADING, WARNINGS
from tdcs.control.dataset.copy_moves import LEFT_WITH_WORKERS
from tdcs.decide.queue.pod_admission import Reason

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = ("control", "decide", "model")
REASON = re.compile(r"[A-Z][A-Za-z]+")

EVENT_CALLS = frozenset({"_tell", "record"})
"""Calls that make an event without a condition: they say its type themselves."""

AS_IT_SHALL_BE = frozenset(
    {
        "AllReady",
        "CertificatesValid",
        "Complete",
        "Completed",
        "Exporting",
        "Following",
        "Granted",
        "Loaded",
        "Mounted",
        "NodesCame",
        "NotReachable",
        "Placed",
        "PodsReady",
        "Restored",
        "Reachable",
        "Within",
    }
)

FOLLOWS_FROM_ANOTHER = frozenset(
    {
        "AllPodsRun",
        "Finished",
        "NotAdmitted",
        "NotNeeded",
        "NotQueued",
        "Off",
        "Resumed",
    }
)

PASSES_BY_ITSELF = frozenset(
    {
        "AwaitsNodes",
        "AwaitsRoomAtData",
        "CacheSilent",
        "CacheStarting",
        "CertificatesPending",
        "ClientsStarting",
        "EarlierJobGoing",
        "EndpointLookup",
        "FreeingDisks",
        "ListingWaits",
        "Loading",
        "Mounting",
        "Planning",
        "PodsReleased",
        "PodsStarting",
        "Reloading",
        "Scheduled",
        "Verifying",
        "VolumeNotBound",
        "WorkersLeaving",
        "WorkersStarting",
    }
)

WAITS_FOR_OTHERS = frozenset(
    {
        "AdmittedByKueue",
        "AllPodsFit",
        "BehindOtherJobs",
        "DatasetAtLimit",
        "DatasetLoading",
        "DatasetNotMounted",
        "DatasetNotReady",
        "DatasetScheduled",
        "DatasetsReady",
        "NotEnoughRoom",
        "ReadinessTimedOut",
        "WaitsInKueue",
    }
)
"""Jobs and Preloads that wait for other jobs or for a Dataset, which has an event of its own, or do not any more."""

ASKED_FOR = frozenset(
    {
        "AtMaximum",
        "Evicted",
        "Expired",
        "KeptByTwin",
        "PreloadDisabled",
        "QueueStopped",
        "Suspended",
        "SuspendedByUser",
    }
)
"""What the object's spec, or another one's, says."""

UNKNOWN = frozenset(
    {
        "ProbeCutOff",
        "ProbeFailed",
        "ProbeRefused",
    }
)
"""Probes that are made again: conditions that are Unknown, which have no events."""

NO_PROBLEM = AS_IT_SHALL_BE | FOLLOWS_FROM_ANOTHER | PASSES_BY_ITSELF | WAITS_FOR_OTHERS | ASKED_FOR | UNKNOWN


def constants() -> dict[str, str]:
    """The words that modules give a name."""
    values = {name: value for name, value in vars(conditions).items() if isinstance(value, str)}
    for module in modules():
        for node in module.body:
            match node:
                case (
                    ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(word)))
                    | ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=str(word)))
                ):
                    values[name] = word
    return values


@cache
def modules() -> list[ast.Module]:
    """What can give a condition, parsed once."""
    folders = [ROOT / "operator" / "tdcs" / folder for folder in FOLDERS]
    return [ast.parse(path.read_text()) for folder in folders for path in sorted(folder.rglob("*.py"))]


def reason_expressions(module: ast.Module) -> Iterator[ast.expr]:
    """What a module gives conditions as their reason."""
    for node in ast.walk(module):
        match node:
            case ast.Call(func=ast.Attribute(attr=name)) if name in EVENT_CALLS:
                continue
            case ast.Call(func=ast.Name(id="finding"), args=[_, _, reason, *_]):
                yield reason
            case ast.Call(func=ast.Name(id="_refused"), args=[reason, *_]):
                yield reason
            case ast.Assign(targets=[ast.Name(id="reason")], value=reason):
                yield reason
            case ast.Assign(
                targets=[ast.Tuple(elts=[ast.Name(id="reason"), *_])], value=ast.Tuple(elts=[reason, *_])
            ):
                yield reason
        if isinstance(node, ast.Call):
            for word in node.keywords:
                match word:
                    case ast.keyword(arg="reason", value=reason):
                        yield reason
                    case ast.keyword(arg="waiting", value=ast.Tuple(elts=[reason, *_])):
                        yield reason


def words_of(expression: ast.expr, constants_by_name: dict[str, str]) -> Iterator[str]:
    """The words that an expression can be, without those that are read from elsewhere."""
    match expression:
        case ast.Constant(value=str(word)):
            yield word
        case ast.Name(id=name) | ast.Attribute(attr=name) if name in constants_by_name:
            yield constants_by_name[name]
        case ast.IfExp(body=body, orelse=orelse):
            yield from words_of(body, constants_by_name)
            yield from words_of(orelse, constants_by_name)


@cache
def known_reasons() -> set[str]:
    """The reasons of conditions that the operator's code has."""
    values = constants()
    reasons = {reason.value for reason in Reason}
    reasons |= {
        value for name, value in vars(conditions).items() if name.isupper() and isinstance(value, str)
    }
    for module in modules():
        for expression in reason_expressions(module):
            reasons.update(words_of(expression, values))
    return {word for word in reasons if REASON.fullmatch(word)}


def test_each_reason_calls_for_a_person_or_is_no_problem() -> None:
    reasons = known_reasons()
    assert not reasons - WARNINGS - NO_PROBLEM, "decide whether a user or an administrator must do something"
    assert not NO_PROBLEM & WARNINGS


def test_no_reason_is_listed_that_the_code_does_not_have() -> None:
    assert not (NO_PROBLEM | WARNINGS) - HOLDING_UP_PODS - known_reasons()


def test_what_the_how_to_lists_as_wrong_with_a_dataset_calls_for_a_person() -> None:
    page = (ROOT / "docs" / "how-to" / "datasets.md").read_text()
    table = page.partition("## When something is wrong")[2].partition("\n\nLimits:")[0]
    rows = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    listed = {word for row in rows for word in re.findall(r"`([A-Z]\w+)`", row)}
    assert {"EndpointNotAllowed", "InUse"} <= listed
    assert not listed - WARNINGS - PASSES_BY_ITSELF


def test_every_reason_that_calls_for_a_person_is_found_by_its_symptom() -> None:
    page = (ROOT / "docs" / "how-to" / "troubleshooting.md").read_text()
    named = set(re.findall(r"`([A-Z][A-Za-z]+)`", page))
    assert named >= WARNINGS, sorted(WARNINGS - named)
    assert named - WARNINGS <= {RELOADING, LEFT_WITH_WORKERS}, "reasons that nothing gives"
