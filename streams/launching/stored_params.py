"""What is kept of a run's parameters: everything but program code (spec coordinator 5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_CODE = "dynamicWorkerCode"
_OF_SNAPSHOT = ("sourceCode", "sourceFiles")
_OF_MANIFEST = ("bundledCode", "sourceCode", "sourceFiles")
_OF_FILE = ("playPath", "storageKey", "contentType", "bytes")


def stored_params(params: Any) -> Any:
    """The parameters (any JSON) without program code and source files.

    Of packaged files only path, key, content type and size are left. What is no object is kept as it is.
    """
    if not isinstance(params, Mapping):
        return params
    kept = {name: value for name, value in params.items() if name != _CODE}
    if "contractSnapshot" in kept:
        kept["contractSnapshot"] = _without(kept["contractSnapshot"], _OF_SNAPSHOT)
    manifests = kept.get("childPlayManifests")
    if isinstance(manifests, Mapping):
        kept["childPlayManifests"] = {
            name: _without(manifest, _OF_MANIFEST) for name, manifest in manifests.items()
        }
    files = kept.get("packagedFiles")
    if isinstance(files, list):
        kept["packagedFiles"] = [
            {name: file.get(name) for name in _OF_FILE} for file in files if isinstance(file, Mapping)
        ]
    return kept


def _without(value: Any, names: tuple[str, ...]) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {name: inner for name, inner in value.items() if name not in names}
