"""Slurm's errors, by the numbers of slurm_errno.h."""

from typing import Final

INVALID_PARTITION: Final = 2000
ACCESS_DENIED: Final = 2002
USER_ID_MISSING: Final = 2010
PATHNAME_TOO_LONG: Final = 2012
CONFIG_UNAVAILABLE: Final = 2014
INVALID_JOB_ID: Final = 2017
INVALID_NODE_NAME: Final = 2018
ALREADY_DONE: Final = 2021
JOB_PENDING: Final = 2024
INVALID_NODE_STATE: Final = 2028
INVALID_FEATURE: Final = 2029
ACTIVE_FEATURE: Final = 2031
DISABLED: Final = 2037
JOB_HELD: Final = 2042
JOB_NOT_PENDING: Final = 2073
JOB_FINISHED: Final = 2084
JOB_NOT_RUNNING: Final = 2085
JOB_NOT_SUSPENDED: Final = 2087
NODE_BUSY: Final = 2016
INVALID_NODE_TRANSITION: Final = 2180
NOT_HET_JOB_LEADER: Final = 2107
INVALID_GROUP: Final = 2113
AUTH_NOBODY: Final = 6010
TOKEN_REFUSED: Final = 1007
NO_CONNECTION: Final = 1800
INVALID_VALUE: Final = 9207

WORDS: Final = {
    -1: "Unspecified error",
    TOKEN_REFUSED: "Protocol authentication error",
    NO_CONNECTION: "Unable to contact slurm controller (connect failure)",
    INVALID_PARTITION: "Invalid partition name specified",
    ACCESS_DENIED: "Access/permission denied",
    USER_ID_MISSING: "Access/permission denied",
    PATHNAME_TOO_LONG: "Pathname of a file, directory or other parameter too long",
    CONFIG_UNAVAILABLE: "Requested node configuration is not available",
    INVALID_JOB_ID: "Invalid job id specified",
    INVALID_NODE_NAME: "Invalid node name specified",
    NODE_BUSY: "Nodes busy",
    ALREADY_DONE: "Job/step already completing or completed",
    JOB_PENDING: "Job is pending execution",
    INVALID_NODE_STATE: "Invalid node state specified",
    INVALID_NODE_TRANSITION: "Invalid node state transition",
    ACTIVE_FEATURE: "Active features not a subset of available features",
    DISABLED: "Requested operation is presently disabled",
    INVALID_FEATURE: "Invalid feature specification",
    JOB_NOT_PENDING: "Job is no longer pending execution",
    JOB_FINISHED: "Job has already finished",
    JOB_NOT_RUNNING: "Job is not running",
    JOB_NOT_SUSPENDED: "Job is not suspended",
    JOB_HELD: "Job is in held state, pending scheduler release",
    NOT_HET_JOB_LEADER: "Job not heterogeneous job leader",
    INVALID_GROUP: "Invalid group id",
    AUTH_NOBODY: "Rejecting authentication of user nobody or group nobody",
    INVALID_VALUE: "Parse error or unknown value",
}


class SlurmError(Exception):
    """Slurm refuses, or cannot."""

    def __init__(self, number: int, description: str = "") -> None:
        super().__init__(description or WORDS.get(number, f"error {number}"))
        self.number: Final = number
        self.description: Final = description
