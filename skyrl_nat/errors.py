"""Every exception of the package, one per subject.

A message says what must hold, what was found and what to do. None of them has an `__init__` of its
own, so they pickle between processes unchanged.
"""


class SkyRLNatError(Exception):
    """Base of all errors that this package raises on purpose."""


class ConfigError(SkyRLNatError, ValueError):
    """The configuration cannot describe a run; raised before anything starts."""


class DataError(SkyRLNatError, ValueError):
    """A task file or a row in it cannot be used."""


class EngineError(SkyRLNatError, RuntimeError):
    """An engine could not answer or is in a state in which it must not answer."""


class WorkerError(SkyRLNatError, RuntimeError):
    """A policy, reference, environment or reward worker failed or died."""


class LostWorkerError(WorkerError):
    """A worker died; whoever started it may start it anew."""


class LostNodeError(WorkerError):
    """A worker's node is gone and no other took its place."""


class WeightSyncError(SkyRLNatError, RuntimeError):
    """A weight push did not complete; the engines it touched must not serve."""


class CheckpointError(SkyRLNatError, RuntimeError):
    """A checkpoint is missing, incomplete or does not fit the run."""


class ExportError(SkyRLNatError, RuntimeError):
    """What was exported is incomplete or does not say what the trainer says; nothing of it is left."""


class SandboxError(SkyRLNatError, RuntimeError):
    """The sandbox itself failed; says nothing about the code that ran in it."""


class DeadlineError(SkyRLNatError, TimeoutError):
    """A wait with an owner and a name ran out of time."""


class SilentWorkerError(DeadlineError):
    """A worker did not answer a call in time; whether it lives is unknown."""


class TrackingError(SkyRLNatError, RuntimeError):
    """The metrics of a step cannot be written down."""


class StoppedError(SkyRLNatError, RuntimeError):
    """The run stopped itself on purpose, for instance after too many skipped updates."""


class StalledError(StoppedError):
    """Nothing moved for too long; the message says who was waited for."""
