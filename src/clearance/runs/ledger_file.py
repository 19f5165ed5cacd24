"""Read and write ledger.json, the list of statistical tests made in a folder.

The ledger is written before a test draws samples and before a verdict is shown. The file contains its own sha256 and
that of the previous ledger. The manifest, the list of all files with their hashes, is written after it. So after a kill
the manifest may still list the previous ledger. Any older ledger is refused, because tests could have been removed from
it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from clearance import __version__
from clearance.certificates.certificate import Certificate
from clearance.certificates.ledger import KINDS, Ledger, Share, Trial, share_of
from clearance.core.atomic_files import digest, fingerprint, load_json, save_json, sha256, without_non_finite
from clearance.core.errors import InputError
from clearance.core.folder_lock import Lock, lock_folder
from clearance.core.inside_folder import Inside, exists_inside, refuse_strange, remove
from clearance.runs.run_reader import SCHEMAS, read_manifest
from clearance.runs.schema import blame_file

NAME = "ledger.json"
LOST = "what was tested here is not known any more: test in another folder"


def write_ledger(path: Inside, ledger: Ledger) -> None:
    """Write the ledger, with its own sha256 and the sha256 of the ledger file that it replaces."""
    shares = [vars(share) | {"trials": [vars(trial) for trial in share.trials]} for share in ledger.shares]
    data = {"schema": SCHEMAS["ledger"], "before": sha256(path) if exists_inside(path) else None, "shares": shares}
    save_json(path, data | {"sha256": digest(data)})


def read_ledger(path: Inside, entry: dict[str, Any] | None) -> Ledger:
    """Read a ledger; raise InputError if it is not the one that the manifest of the folder lists.

    entry  the manifest's entry for the ledger. Its sha256 must be that of the ledger in the file, or of the ledger that
           this one replaced. None: skip this check
    """
    try:
        data = load_json(path, SCHEMAS["ledger"])
    except InputError as e:
        raise InputError(f"{e}; {LOST}") from None
    if data.pop("sha256", None) != digest(data):
        raise InputError(f"{path}: is altered, its sha256 is not that of its content; {LOST}")
    if entry is not None and entry["sha256"] not in (sha256(path), data.get("before")):
        raise InputError(f"{path}: is not the ledger that manifest.json lists; {LOST}")
    with blame_file(path):
        ledger = Ledger([_parse_share(share) for share in data["shares"]])
        _check_levels(path, ledger)
        return ledger


def _parse_share(data: dict[str, Any]) -> Share:
    trials = [Trial(**trial) for trial in data["trials"]]
    return Share(data["kind"], data["delta"], data["level"], trials)


def _check_levels(path: Inside, ledger: Ledger) -> None:
    """Raise InputError if the ledger divides δ in a wrong way.

    A ledger consists of shares of δ. The level of a share must follow from its δ and its position in the ledger, and
    its tests together must not use more than this level.
    """
    for number, share in enumerate(ledger.shares, 1):
        right = share.kind in KINDS and 0 < share.delta < 1 and share.level == share_of(number) * share.delta
        levels = [trial.level for trial in share.trials]
        if not right or min(levels, default=1.0) <= 0 or sum(levels) > share.level * (1 + 1e-9):
            raise InputError(f"{path}: share {number} is not what it should be; {LOST}")


class LedgerFolder:
    """A folder in which `certify` stores its ledger: a run folder, or a folder for certificates alone.

    The first test creates or opens the folder, which then stays locked until the end of the `with` block.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).absolute()
        self._lock: Lock | None = None
        self._ledger = Ledger()

    def __enter__(self) -> LedgerFolder:
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            self._lock.close()

    def load(self) -> Ledger:
        """Lock the folder on first use, and return its ledger."""
        if self._lock is None:
            _make_folder(self.folder)
            refuse_strange(self.folder, ("certificates",))
            self._lock = lock_folder(self.folder)
            self._ledger = self._open() if exists_inside(self._path("manifest.json")) else self._create()
            self._ledger.keep = self._keep
        return self._ledger

    def _path(self, name: str) -> Inside:
        return Inside(self.folder, name, None if self._lock is None else self._lock.handle)

    def _create(self) -> Ledger:
        """Write an empty ledger, then a manifest, and return the ledger.

        A kill between these two writes leaves an empty ledger without a manifest. The next call replaces it.
        """
        if exists_inside(self._path(NAME)) and read_ledger(self._path(NAME), None).shares:
            raise InputError(f"{self._path('manifest.json')}: is missing; {LOST}")
        state = {"status": "done", "phase": "certify", "k": 0, "K": None, "env_steps": 0, "seconds": 0.0}
        manifest = {"schema": SCHEMAS["manifest"], **state, "message": "", "version": __version__, "files": {}}
        manifest["run"] = digest("certify")[:32]  # a fixed id: this folder has no run to identify
        remove(self._path(NAME))
        write_ledger(self._path(NAME), Ledger())
        self._enter(manifest, NAME)
        return Ledger()

    def _open(self) -> Ledger:
        files = read_manifest(self._path("manifest.json"))["files"]
        if NAME not in files:
            raise InputError(f"{self.folder}: has no ledger of the tests that were made in it: give another folder")
        return read_ledger(self._path(NAME), files[NAME])

    def _keep(self) -> None:
        write_ledger(self._path(NAME), self._ledger)
        self._enter(read_manifest(self._path("manifest.json")), NAME)

    def write_certificate(self, certificate: Certificate) -> None:
        """Write the certificate of the latest test to certificates/NNNNNN.json; certificate.json stays unchanged."""
        name = f"certificates/{self._ledger.latest:06d}.json"
        data = {"schema": SCHEMAS["certificate"], **without_non_finite(certificate.asdict())}
        save_json(self._path(name), data)
        self._enter(read_manifest(self._path("manifest.json")), name)

    def _enter(self, manifest: dict[str, Any], name: str) -> None:
        """Write `manifest` to disk, with the current hash of the file `name` added."""
        manifest["files"][name] = fingerprint(self._path(name))
        save_json(self._path("manifest.json"), manifest | {"sha256": digest(manifest)})


def _make_folder(folder: Path) -> None:
    """Create the folder; raise InputError if it exists and contains other files, but no ledger or manifest."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        names = {p.name for p in folder.iterdir()}
    except OSError as e:
        raise InputError(f"{folder}: cannot write: {e.strerror or e}") from None
    if names - {"lock", f"{NAME}.partial"} and not names & {NAME, "manifest.json"}:
        raise InputError(f"{folder}: is neither empty nor a folder with a ledger of tests: give another")
