"""The settings of a service that speaks to slurmrestd."""

from pathlib import Path

from sunk_runtime.errors import ConfigError
from sunk_runtime.settings import Seconds, ServiceSettings
from sunk_slurm.tokens import Tokens, tokens_from
from sunk_slurm.trust import Trust


class SlurmSettings(ServiceSettings, frozen=True, kw_only=True):
    """Where slurmrestd is, and the user that calls it."""

    slurm_url: str = "http://127.0.0.1:6820"
    """slurmrestd; several addresses with commas between are tried in turn."""
    slurm_ca_file: Path | None = None
    """The authorities that slurmrestd's certificate may be of, if its address says https; read again when it
    changes. Empty: those that browsers know."""
    slurm_token_file: Path | None = None
    """A token for ``slurm_user``; read again when it changes. This or the key file is needed."""
    slurm_key_file: Path | None = None
    """slurmctld's JWT key. A process that has it can act as Slurm's root: use a token file in production."""
    slurm_user: str = "root"
    """The Slurm user of tokens that the service signs. Only an administrator may drain, and submit for
    others."""
    call_timeout_s: Seconds = 5.0
    """One call about one node or job."""

    @property
    def trust(self) -> Trust | None:
        """The certificate authorities of slurmrestd; None: those of browsers."""
        return None if self.slurm_ca_file is None else Trust(self.slurm_ca_file)

    def tokens(self, prefix: str) -> Tokens:
        """Return what makes or reads our tokens.

        Args:
            prefix: Of the environment's variables, to name them.

        Raises:
            ConfigError: neither or both of the files are given, or one cannot be read.
        """
        if (self.slurm_token_file is None) == (self.slurm_key_file is None):
            raise ConfigError(f"set one of {prefix}SLURM_TOKEN_FILE and {prefix}SLURM_KEY_FILE")
        return tokens_from(
            key_file=self.slurm_key_file, token_file=self.slurm_token_file, user=self.slurm_user
        )
