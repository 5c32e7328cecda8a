"""An issuer of Pod tokens, as the API server is one."""

import json
import time
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

ISSUER: Final = "https://kubernetes.default.svc.cluster.local"
AUDIENCE: Final = "sunk-hooks"
UID: Final = "8f4c"
"""Of every Pod, where a test says no other."""


class Issuer:
    """Issues bound ServiceAccount tokens, as the API server does."""

    def __init__(self, kid: str = "k1") -> None:
        self.kid = kid
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    def jwk(self) -> dict[str, Any]:
        """Return the public key as an entry of a JWKS document."""
        public = RSAAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        return {**public, "kid": self.kid, "alg": "RS256", "use": "sig"}

    def jwks(self) -> bytes:
        """Return the document that the API server publishes."""
        return json.dumps({"keys": [self.jwk()]}).encode()

    def token(
        self,
        pod: str = "gpu-000-012",
        namespace: str = "slurm",
        *,
        uid: str = UID,
        account: str = "slurmd",
        bound: object = "",
        **claims: object,
    ) -> str:
        """Return a token that is bound to *pod*; *claims* replace what it would say, None leaves out."""
        now = int(time.time())
        of = {"namespace": namespace, "serviceaccount": {"name": account, "uid": UID}}
        to = of | ({"pod": {"name": pod, "uid": uid}} if pod else {})
        payload: dict[str, object] = {
            "iss": ISSUER,
            "aud": [AUDIENCE],
            "iat": now,
            "nbf": now,
            "exp": now + 7200,
            "sub": f"system:serviceaccount:{namespace}:{account}",
            "kubernetes.io": to if bound == "" else bound,
            **claims,
        }
        content = {name: value for name, value in payload.items() if value is not None}
        return jwt.encode(content, self._key, algorithm="RS256", headers={"kid": self.kid})
