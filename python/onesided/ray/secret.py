"""The cluster's shared secret, by which engines on other nodes prove that they belong to this Ray cluster. The first
process that needs it generates it and stores it in Ray's internal key-value store, which only members of the cluster
can read."""

from __future__ import annotations

import os
import secrets

from ray.experimental import internal_kv

_KEY = b"onesided:auth_secret"
_NAMESPACE = b"onesided"
_BYTES = 32


def cluster_secret() -> bytes:
    """The cluster's secret, the same in all its processes. Needs a connection to Ray; its errors are Ray's."""
    # overwrite=False: if two processes generate one at the same time, both use the first one stored.
    if (found := internal_kv._internal_kv_get(_KEY, namespace=_NAMESPACE)) is None:
        internal_kv._internal_kv_put(_KEY, secrets.token_hex(_BYTES).encode(), overwrite=False, namespace=_NAMESPACE)
        found = internal_kv._internal_kv_get(_KEY, namespace=_NAMESPACE)
    if found is None:
        raise RuntimeError(
            "Ray's internal key-value store did not store the cluster's secret; check that the GCS is running"
        )
    return found


class SecretFile:
    """The secret as a file for the engine's `auth_secret_file`, in memory only, so that no file remains. Confined to
    one thread; a context manager."""

    def __init__(self, content: bytes) -> None:
        self._fd = os.memfd_create("onesided-secret", os.MFD_CLOEXEC)
        os.fchmod(self._fd, 0o600)
        os.write(self._fd, content)

    @property
    def path(self) -> str:
        return f"/proc/self/fd/{self._fd}"

    def __enter__(self) -> SecretFile:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)
