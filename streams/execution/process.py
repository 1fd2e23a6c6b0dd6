"""An executor as a process: find the app, run it, stop it in time."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import signal
import sys
import threading
import traceback

from streams.executor import Executor
from streams.settings import Settings
from streams.user_errors import UserError

_IMPORTING = ("<frozen importlib", importlib.__file__, __file__)
"""Files whose frames stand between us and the module."""
_log = logging.getLogger("runlane.executor")


def load_app(place: str) -> Executor:
    """The `Executor` that `module:attribute` names; modules are looked for in the working directory too.

    Raises `UserError` that says which part is wrong, or where the module itself fails.
    """
    module_name, colon, attribute = place.partition(":")
    if not (module_name and colon and attribute):
        raise UserError(f"{place!r} names no executor.", "write module:app, such as jobs:app", exit_code=2)
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise _broken_module(module_name, error) from error
        raise UserError(
            f"There is no module {error.name!r} (in {place!r}).",
            f"run this where {error.name} can be imported; the working directory is {os.getcwd()}",
            exit_code=2,
        ) from error
    except Exception as error:
        raise _broken_module(module_name, error) from error
    found = getattr(module, attribute, None)
    if isinstance(found, Executor):
        return found
    apps = [name for name, value in vars(module).items() if isinstance(value, Executor)]
    what = "does not exist" if found is None else f"is a {type(found).__name__}, not an Executor"
    raise UserError(
        f"{attribute!r} of module {module_name!r} {what}.",
        f"the module has: {', '.join(apps)}" if apps else "the module has no Executor",
        exit_code=2,
    )


def _broken_module(name: str, error: Exception) -> UserError:
    """The error with its traceback, which begins where the module does."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_IMPORTING):
        trace = trace.tb_next
    lines = traceback.format_exception(type(error), error, trace, chain=error.__cause__ is not None)
    return UserError(f"The module {name!r} cannot be imported:\n{''.join(lines).rstrip()}")


def run(app: Executor, settings: Settings) -> None:
    """Execute runs until SIGTERM or SIGINT; then finish or give back what is being executed.

    Ends the process when that takes longer than the setting `shutdown_deadline_s`. Raises `UserError` when
    the app has no functions, or topics are missing.
    """
    if not app.names:
        raise UserError("The executor has no functions.", 'register them by @app.run("name")', exit_code=2)
    asyncio.run(_run(app, settings))


async def _run(app: Executor, settings: Settings) -> None:
    stop = asyncio.Event()

    def told_to_stop() -> None:
        if stop.is_set():
            return
        _log.info("stopping: what is being executed may finish")
        stop.set()
        deadline = threading.Timer(settings.shutdown_deadline_s, os._exit, [0])
        deadline.daemon = True
        deadline.start()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told_to_stop)
    _log.info(
        "executing %s (%d at once, group %s)",
        ", ".join(app.names),
        settings.executor_concurrency,
        settings.name(settings.executor_group),
    )
    await app.serve(settings, stop)
