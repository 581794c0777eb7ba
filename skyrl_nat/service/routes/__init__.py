"""One file per subject; each makes an `APIRouter` that also works alone."""
