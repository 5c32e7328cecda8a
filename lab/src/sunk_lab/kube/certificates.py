"""One authority per lab, and a certificate for each component: servers and clients alike."""

import json
from pathlib import Path

from sunk_lab.processes import run


class Authority:
    """Certificates and keys in a folder of their own; each is made once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def crt(self, name: str = "ca") -> Path:
        """Return the certificate of *name*."""
        return self._folder / f"{name}.crt"

    def key(self, name: str = "ca") -> Path:
        """Return the private key of *name*."""
        return self._folder / f"{name}.key"

    def found(self) -> None:
        """Make the authority itself and the key that signs ServiceAccount tokens."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._folder.chmod(0o700)
        self._request("ca", "/CN=sunk-lab")
        if not self.key("sa").exists():
            new = self.key("sa").with_suffix(".new")
            run("openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", new)
            new.rename(self.key("sa"))

    def issue(self, name: str, common_name: str, *, group: str = "", names: str = "") -> None:
        """Make a certificate, unless it is there.

        Args:
            name: What its files are called.
            common_name: The user that Kubernetes sees.
            group: The group that Kubernetes sees.
            names: Its subjectAltName, as openssl writes it.
        """
        subject = (f"/O={group}" if group else "") + f"/CN={common_name}"
        extensions = (
            "basicConstraints=critical,CA:FALSE",
            "extendedKeyUsage=serverAuth,clientAuth",
            "keyUsage=digitalSignature",
            *((f"subjectAltName={names}",) if names else ()),
        )
        signed = ("-CA", self.crt(), "-CAkey", self.key())
        self._request(name, subject, *signed, *(word for line in extensions for word in ("-addext", line)))

    def kubeconfig(self, path: Path, name: str, api: str) -> Path:
        """Write the kubeconfig of *name*, readable by root only; return its path."""
        new = path.with_suffix(".new")
        new.touch(mode=0o600)
        new.write_text(kubeconfig(api, name, ca=self.crt(), crt=self.crt(name), key=self.key(name)))
        new.rename(path)
        return path

    def _request(self, name: str, subject: str, *more: str | Path) -> None:
        if self.crt(name).exists():
            return
        key, crt = self.key(name).with_suffix(".key.new"), self.crt(name).with_suffix(".crt.new")
        curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
        out = ("-days", "3650", "-subj", subject, "-keyout", key, "-out", crt)
        run("openssl", "req", "-x509", *curve, *out, *more)
        key.rename(self.key(name))
        crt.rename(self.crt(name))  # Last: once it is there, both are.


def kubeconfig(api: str, user: str, *, ca: Path, crt: Path, key: Path) -> str:
    """Return a kubeconfig (JSON is YAML) for *user* at *api*."""
    cluster = {"server": api, "certificate-authority": str(ca)}
    client = {"client-certificate": str(crt), "client-key": str(key)}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "sunk-lab",
            "clusters": [{"name": "sunk-lab", "cluster": cluster}],
            "users": [{"name": user, "user": client}],
            "contexts": [{"name": "sunk-lab", "context": {"cluster": "sunk-lab", "user": user}}],
        }
    )
