"""Rules of rate buckets from a YAML file; what is wrong in it is named with its line and field.

buckets:
  org:openai:
    - ruleId: rpm
      requestsPerWindow: 500
      windowMs: 60000
      kind: sliding
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any

import yaml
from pydantic import ConfigDict, Field, StringConstraints, ValidationError

from schemas.envelope import MAX_KEY_BYTES
from schemas.rate_rules import (
    MAX_PERMITS,
    MAX_RULE_ID_CHARACTERS,
    MAX_RULES,
    MAX_WINDOW_MS,
    Kind,
    RateRule,
)
from streams.user_errors import UserError

_TOP = "buckets"
_MOST_SHOWN = 20
_INTEGER = "tag:yaml.org,2002:int"
_SCALARS = {f"tag:yaml.org,2002:{name}" for name in ("str", "bool", "float", "null")} | {_INTEGER}
_DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9_]{0,99})")


class RulesFileError(UserError):
    """A file of rules that is not right; `problems` names each line and field."""

    def __init__(self, file: str, problems: list[str]) -> None:
        shown = problems[:_MOST_SHOWN]
        more = f"; and {len(problems) - len(shown)} more" if len(problems) > len(shown) else ""
        super().__init__(
            f"{file}: {'; '.join(shown)}{more}.",
            "a file holds `buckets:`, below it bucket ids, and for each a list of rules with ruleId, "
            "requestsPerWindow, windowMs, and if need be kind (window, sliding, bucket) and maxConcurrency",
            exit_code=2,
        )
        self.problems = problems


class _FileRule(RateRule):
    """A rule as it stands in a file: stricter than on the wire, where clients of other versions send it."""

    model_config = ConfigDict(extra="forbid")

    rule_id: Annotated[str, StringConstraints(min_length=1, max_length=MAX_RULE_ID_CHARACTERS)]
    requests_per_window: Annotated[int, Field(ge=1, le=MAX_PERMITS)]
    window_ms: Annotated[int, Field(ge=1, le=MAX_WINDOW_MS)]
    max_concurrency: Annotated[int, Field(ge=1, le=MAX_PERMITS)] | None = None
    kind: Kind = "window"


def read_rules(text: str, file: str) -> dict[str, list[RateRule]]:
    """Bucket id -> its rules. Raises `RulesFileError`; `file` is what it calls the text."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        problem = f"line {line}: not YAML: the character {chr(error.character)!a} may not stand here"
        raise RulesFileError(file, [problem]) from None
    except yaml.MarkedYAMLError as error:
        where = f"line {error.problem_mark.line + 1}: " if error.problem_mark is not None else ""
        raise RulesFileError(file, [f"{where}not YAML: {error.problem}"]) from None
    except RecursionError:
        raise RulesFileError(file, ["lists or mappings are nested too deeply"]) from None
    problems: list[str] = []
    found: dict[str, list[RateRule]] = {}
    for bucket, rules in _buckets(root, problems):
        found[bucket] = list(_rules(rules, bucket, problems))
    if problems:
        raise RulesFileError(file, problems)
    return found


def _buckets(root: Any, problems: list[str]) -> Iterator[tuple[str, Any]]:
    if not isinstance(root, yaml.MappingNode):
        problems.append(f"{_line(root)}`{_TOP}:` is missing")
        return
    tops = _members(root, "", problems)
    if all(name.value != _TOP for name, _ in tops):
        problems.append(f"{_line(root)}`{_TOP}:` is missing")
    for top, buckets in tops:
        if top.value != _TOP:
            problems.append(f"{_line(top)}{top.value}: not known here, only `{_TOP}` is")
            continue
        if not isinstance(buckets, yaml.MappingNode) or not buckets.value:
            problems.append(f"{_line(buckets)}{_TOP}: bucket ids with their rules should stand here")
            continue
        for name, rules in _members(buckets, _TOP, problems):
            if 1 <= _bytes_of(name.value) <= MAX_KEY_BYTES:
                yield name.value, rules
            else:
                problems.append(f"{_line(name)}{_TOP}: a bucket id has 1 to {MAX_KEY_BYTES} bytes of UTF-8")


def _rules(node: Any, bucket: str, problems: list[str]) -> Iterator[RateRule]:
    if not isinstance(node, yaml.SequenceNode):
        problems.append(
            f"{_line(node)}{bucket}: a list of rules should stand here; an empty one removes them"
        )
        return
    if len(node.value) > MAX_RULES:
        problems.append(f"{_line(node)}{bucket}: {len(node.value)} rules, at most {MAX_RULES} may be")
    seen: set[Any] = set()
    for number, item in enumerate(node.value):
        where = f"{bucket}[{number}]"
        if not isinstance(item, yaml.MappingNode):
            problems.append(f"{_line(item)}{where}: a rule has fields, such as `ruleId: rpm`")
            continue
        members = _members(item, where, problems)
        lines = {name.value: name for name, _ in members}
        wrong = [
            f"{_line(value)}{where}.{name.value}: neither text nor a decimal number"
            for name, value in members
            if not _is_plain(value)
        ]
        if wrong:
            problems.extend(wrong)
            continue
        try:
            rule = _FileRule.model_validate({name.value: _value(value) for name, value in members})
        except ValidationError as error:
            for each in error.errors(include_url=False, include_input=False):
                field = str(each["loc"][0])
                problems.append(f"{_line(lines.get(field, item))}{where}.{field}: {each['msg']}")
            continue
        limit = rule.limit
        at = (limit.rule_id, limit.kind, limit.window_ms)
        if at in seen:
            problems.append(
                f"{_line(item)}{where}.ruleId: another rule of this id, kind and window stands above"
            )
        seen.add(at)
        yield rule


def _members(node: yaml.MappingNode, where: str, problems: list[str]) -> list[tuple[Any, Any]]:
    """Names and values; a name must be text and stand once."""
    seen: set[str] = set()
    found = []
    for name, value in node.value:
        if not isinstance(name, yaml.ScalarNode):
            problems.append(f"{_line(name)}{where or 'file'}: a name should be text")
        elif name.value in seen:
            problems.append(f"{_line(name)}{f'{where}.' if where else ''}{name.value}: stands here twice")
        else:
            seen.add(name.value)
            found.append((name, value))
    return found


def _is_plain(node: Any) -> bool:
    """Whether it is text, or what YAML and a reader take for the same number: not 0600 (384) nor 1:30 (90)."""
    if not isinstance(node, yaml.ScalarNode) or node.tag not in _SCALARS:
        return False
    return node.tag != _INTEGER or _DECIMAL.fullmatch(node.value) is not None


def _value(node: yaml.ScalarNode) -> Any:
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_object(node)
    finally:
        loader.dispose()


def _bytes_of(name: str) -> int:
    """The length in UTF-8; 0 when it is no Unicode text, for YAML takes halves of characters."""
    try:
        return len(name.encode())
    except UnicodeEncodeError:
        return 0


def _line(node: Any) -> str:
    return f"line {node.start_mark.line + 1}: " if node is not None else ""
