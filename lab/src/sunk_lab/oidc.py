"""An issuer of OpenID Connect: logs in whoever it is told to, without asking for a password.

Source: OpenID Connect Core 1.0 (authorization code flow), RFC 7636 (S256) and OpenID Connect Discovery 1.0.
"""

import base64
import hashlib
import json
import secrets
import ssl
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from sunk_lab.collector import Served

_KEY_ID: Final = "one"
_REFUSED: Final = 400
_JSON: Final = {"Content-Type": "application/json"}
Reply = tuple[int, dict[str, str], bytes]


class Issuer(Served):
    """Listens on *host* with a certificate while the context lasts; knows one client.

    Args:
        host: Where, and part of its URL.
        crt: Its certificate.
        key: The key of that.
        client: Id and secret of the client.
    """

    def __init__(self, host: str, crt: Path, key: Path, client: tuple[str, str]) -> None:
        self.claims: dict[str, object] = {}
        """Of the user who logs in next: ``sub``, ``email``, ``groups`` and so on."""
        self.lifetime_s = 3600
        """Of the tokens that are issued from now on."""
        self.refuses_renewals = False
        self.renewals = 0
        """How many tokens were issued for one before."""
        self._client = client
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._requests: dict[str, tuple[dict[str, str], dict[str, object]]] = {}
        self._renewable: dict[str, dict[str, object]] = {}
        """The claims of each refresh token that was not used yet."""
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer("")

            def do_POST(self) -> None:
                self._answer(self.rfile.read(int(self.headers["Content-Length"])).decode())

            def _answer(self, body: str) -> None:
                parts = urlsplit(self.path)
                query = {name: values[0] for name, values in parse_qs(body or parts.query).items()}
                status, headers, data = issuer.reply(parts.path, query, self.headers.get("Authorization", ""))
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(data))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
                """Write no line for each request."""

        self._server = ThreadingHTTPServer((host, 0), Handler)
        self._server.daemon_threads = True
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(crt, key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://{host}:{self._server.server_port}"

    def reply(self, path: str, query: Mapping[str, str], authorization: str) -> Reply:
        """Return status, headers and body of the answer to one request."""
        match path:
            case "/.well-known/openid-configuration":
                return _json(self._discovery())
            case "/keys":
                public: dict[str, Any] = RSAAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
                return _json({"keys": [{**public, "kid": _KEY_ID, "alg": "RS256", "use": "sig"}]})
            case "/authorize":
                code = secrets.token_urlsafe()
                self._requests[code] = dict(query), self.claims
                back = urlencode({"code": code, "state": query["state"]})
                return 302, {"Location": f"{query['redirect_uri']}?{back}"}, b""
            case "/token":
                return self._tokens(query, authorization)
            case _:
                return 404, {}, b""

    def _discovery(self) -> dict[str, object]:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
            "code_challenge_methods_supported": ["S256"],
        }

    def _tokens(self, query: Mapping[str, str], authorization: str) -> Reply:
        own = base64.b64encode(":".join(self._client).encode()).decode()
        if authorization != f"Basic {own}":
            return _REFUSED, {}, b"another client"
        if query["grant_type"] == "refresh_token":
            known = self._renewable.pop(query["refresh_token"], None)
            if known is None or self.refuses_renewals:
                return _REFUSED, _JSON, b'{"error": "invalid_grant"}'
            self.renewals += 1
            return self._issued(known, {}, is_renewable=True)
        requested, claims = self._requests.pop(query["code"])
        digest = hashlib.sha256(query["code_verifier"].encode()).digest()
        if base64.urlsafe_b64encode(digest).decode().rstrip("=") != requested["code_challenge"]:
            return _REFUSED, {}, b"another verifier"
        nonce: dict[str, object] = {"nonce": requested["nonce"]} if "nonce" in requested else {}
        return self._issued(claims, nonce, is_renewable="offline_access" in requested["scope"].split())

    def _issued(self, claims: dict[str, object], more: dict[str, object], *, is_renewable: bool) -> Reply:
        moment = int(time.time())
        payload = {
            "iss": self.url,
            "aud": self._client[0],
            "iat": moment,
            "exp": moment + self.lifetime_s,
            **claims,
            **more,
        }
        found = {
            "id_token": jwt.encode(payload, self._key, algorithm="RS256", headers={"kid": _KEY_ID}),
            "access_token": secrets.token_urlsafe(),
            "token_type": "Bearer",
            "expires_in": self.lifetime_s,
        }
        if is_renewable:
            found["refresh_token"] = secrets.token_urlsafe()
            self._renewable[found["refresh_token"]] = claims
        return _json(found)


def _json(found: Mapping[str, object]) -> Reply:
    return 200, _JSON, json.dumps(found).encode()
