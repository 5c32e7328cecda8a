"""Accounting of a cluster on the machine: slurmdbd and a MariaDB of its own, on a socket only.

What they keep is in the cluster's folder: it outlives each daemon, and goes with the cluster.

Source: slurmdbd.conf(5) of 24.11 and 26.05, tried. The database must know its user: with
``--skip-grant-tables`` libmariadb 11.8.9 refuses every answer ("maximum allowed number of columns (=0)").
"""

import os
from pathlib import Path
from typing import Final

from sunk_lab.slurm.roots import INSTANCE, SLURM_UID

DATABASE: Final = "mariadbd"
SLURMDBD: Final = "slurmdbd"
BACKUP: Final = "slurmdbd-backup"
BACKUP_HOST: Final = "dbd-backup"
BACKUP_ADDRESS: Final = "127.0.0.3"
_SOCKET: Final = "/run/mysqld/mysqld.sock"
_DATA: Final = f"{INSTANCE}/database"
_START: Final = f"""
mkdir -p /run/mysqld /run/slurmdbd
chown slurm /run/slurmdbd
[ -d {_DATA}/mysql ] || mariadb-install-db --datadir={_DATA} --user=root \\
    --auth-root-authentication-method=normal --skip-test-db
cat >/run/mysqld/init.sql <<SQL
CREATE DATABASE IF NOT EXISTS slurm_acct_db;
CREATE USER IF NOT EXISTS slurm@localhost IDENTIFIED BY 'lab';
GRANT ALL ON slurm_acct_db.* TO slurm@localhost;
SQL
exec mariadbd --no-defaults --user=root --datadir={_DATA} --tmpdir=/tmp --socket={_SOCKET} \\
    --pid-file=/run/mysqld/mysqld.pid --skip-networking --init-file=/run/mysqld/init.sql \\
    --innodb-snapshot-isolation=OFF
"""

COMMANDS: Final = {DATABASE: ("bash", "-c", _START), SLURMDBD: ("slurmdbd", "-D")}
"""How each is started inside."""
ASK_DATABASE: Final = ("mariadb", "--no-defaults", f"--socket={_SOCKET}", "--execute", "SELECT 1")


def slurm_conf_lines(port: int, *, has_backup: bool = False) -> tuple[str, ...]:
    """Return the lines of slurm.conf for a slurmdbd on *port*, as the chart has them."""
    return (
        "AccountingStorageType=accounting_storage/slurmdbd",
        "AccountingStorageHost=127.0.0.1",
        *((f"AccountingStorageBackupHost={BACKUP_ADDRESS}",) if has_backup else ()),
        f"AccountingStoragePort={port}",
        "AccountingStoreFlags=job_comment,job_extra",
    )


def write_files(folder: Path, port: int, *, has_backup: bool = False) -> None:
    """Write below *folder* what a slurmdbd on *port* needs."""
    (folder / "database").mkdir()
    file = folder / "etc/slurmdbd.conf"
    file.touch(0o600)
    file.write_text("".join(f"{line}\n" for line in _slurmdbd_conf(port, has_backup=has_backup)))
    os.chown(file, SLURM_UID, SLURM_UID)


def _slurmdbd_conf(port: int, *, has_backup: bool) -> tuple[str, ...]:
    # Both listen on the same port, each on its own address. The rest as the chart has it.
    words = "NoInAddrAny,keepalivetime=10,keepaliveinterval=5,keepaliveprobes=3"
    backup = (f"DbdBackupHost={BACKUP_HOST}", f"CommunicationParameters={words}")
    return (
        "DbdHost=ctl",
        "DbdAddr=127.0.0.1",
        *(backup if has_backup else ()),
        f"DbdPort={port}",
        "SlurmUser=slurm",
        "AuthType=auth/slurm",
        "AuthAltTypes=auth/jwt",
        f"AuthAltParameters=jwt_key={INSTANCE}/etc/jwt.key",
        "PidFile=/run/slurmdbd/slurmdbd.pid",
        "StorageType=accounting_storage/mysql",
        "StorageHost=localhost",
        "StorageUser=slurm",
        "StoragePass=lab",
        "StorageLoc=slurm_acct_db",
    )
