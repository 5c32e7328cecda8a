"""A directory service for Slurm's Pods: Debian's OpenLDAP, read by anybody, with what it is started with.

slapd runs from its root by that root's own loader and libraries, so nothing is mounted or changed there.
"""

import socket
from pathlib import Path
from typing import Final, Self

from sunk_lab import debian
from sunk_lab.kube.prerequisites import Report
from sunk_lab.processes import Processes, run, wait_for

BASE: Final = "dc=lab"
_RECIPE: Final = debian.Recipe(suite="trixie", packages=("slapd",))
_NAME: Final = "slapd"
# Slapd has no schema for public keys of ssh; this one is what everybody uses.
_CONFIGURATION: Final = """\
include {root}/etc/ldap/schema/core.schema
include {root}/etc/ldap/schema/cosine.schema
include {root}/etc/ldap/schema/nis.schema
attributetype ( 1.3.6.1.4.1.24552.500.1.1.1.13 NAME 'sshPublicKey'
  EQUALITY octetStringMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.40 )
objectclass ( 1.3.6.1.4.1.24552.500.1.1.2.0 NAME 'ldapPublicKey' SUP top AUXILIARY
  MAY ( sshPublicKey $ uid ) )
modulepath {root}/usr/lib/ldap
moduleload back_mdb
database mdb
suffix {base}
directory {data}
"""
_BASE_ENTRY: Final = f"dn: {BASE}\nobjectClass: dcObject\nobjectClass: organization\no: lab\ndc: lab\n\n"


class Directory:
    """An LDAP server; everything it has is in *folder*. As a context it runs meanwhile."""

    def __init__(self, folder: Path, cache: Path, entries: str, *, address: str = "127.0.0.1") -> None:
        """Describe a server.

        Args:
            folder: Configuration and database, empty or not there. Whoever made it removes it.
            cache: Where Debian's roots are kept.
            entries: What it serves below `BASE`, in LDIF; the base itself is there.
            address: Where it listens, on a port that is free.
        """
        self._folder: Final = folder
        self._cache: Final = cache
        self._entries: Final = _BASE_ENTRY + entries
        self._address: Final = address
        self._processes: Final = Processes(folder)
        self.url = ""

    def start(self, report: Report) -> None:
        """Start it; its root is made the first time.

        Raises:
            LabError: It does not start; names its log.
        """
        root = debian.root_of(_RECIPE, self._cache / "openldap", report)
        data = self._folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        configuration = self._folder / "slapd.conf"
        configuration.write_text(_CONFIGURATION.format(root=root, base=BASE, data=data))
        (libraries,) = root.glob("usr/lib/*-linux-gnu")
        (loader,) = root.glob("usr/lib64/ld-linux-*.so.*")
        slapd = (loader, "--library-path", libraries, root / "usr/sbin/slapd")
        run(*slapd, "-T", "add", "-f", configuration, input=self._entries)
        with socket.create_server((self._address, 0)) as probe:
            port = probe.getsockname()[1]
        self.url = f"ldap://{self._address}:{port}"
        self._processes.spawn(_NAME, [*slapd, "-d", "none", "-f", configuration, "-h", self.url])

        def answers() -> bool:
            with socket.socket() as client:
                return client.connect_ex((self._address, port)) == 0

        wait_for(f"slapd, see {self._processes.log_of(_NAME)}", answers)

    def __enter__(self) -> Self:
        self.start(lambda _line: None)
        return self

    def __exit__(self, *_: object) -> None:
        self._processes.kill(_NAME)
