"""The group's authority: its key signs the nodes' certificates and the group's description. openssl(1) does the work.

The authority's key and the nodes' keys never leave the hosts that made them.
"""
import base64
import contextlib
import datetime
import hashlib
import os
import pathlib
import re
import secrets
import subprocess
import tempfile
import weakref

from host import Trouble

YEARS = 10
DAYS = 180  # there are no revocation lists: a lost host's certificate is good for so long at most
# The name of the one who may take hosts in: no node can have it, since "_" is in no node's name.
ENROLLER = "enroll_.dovelane.invalid"


class Secret:
    """A key as a file without a name, for openssl: it is gone with this object, and with the process, also when that is killed."""

    def __init__(self, text):
        self.descriptor = os.memfd_create("key", os.MFD_CLOEXEC)
        weakref.finalize(self, os.close, self.descriptor)
        with os.fdopen(os.dup(self.descriptor), "w") as out:
            out.write(text)

    def __str__(self):
        return f"/proc/self/fd/{self.descriptor}"


def openssl(*words, given=None):
    done = subprocess.run(["openssl", *map(str, words)], input=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60, check=False,
                          pass_fds=[word.descriptor for word in words if isinstance(word, Secret)])
    if done.returncode:
        raise Trouble(f"`openssl {words[0]}` failed: {done.stderr.decode('utf-8', 'replace').strip()}")
    return done.stdout


@contextlib.contextmanager
def scratch():
    """A directory that nobody else may enter, in memory where there is such. A kill leaves it there: so nothing secret comes into it."""
    where = "/dev/shm" if os.path.isdir("/dev/shm") and os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="dovelane-", dir=where) as directory:
        yield pathlib.Path(directory)


def new_key():
    return openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout").decode()


def new_authority():
    """(key, certificate), both PEM."""
    key = new_key()
    with scratch() as d:
        (d / "conf").write_text("[req]\ndistinguished_name = dn\n[dn]\n[ca]\nbasicConstraints = critical,CA:TRUE,pathlen:0\nkeyUsage = critical,keyCertSign,cRLSign,digitalSignature\n"
                                "subjectKeyIdentifier = hash\n")
        name = f"/CN=Dovelane {datetime.date.today()} {secrets.token_hex(4)}"
        return key, openssl("req", "-x509", "-new", "-key", Secret(key), "-config", d / "conf", "-extensions", "ca", "-sha256", "-days", YEARS * 365, "-subj", name).decode()


def request(key):
    """A certificate request. Only its public key counts: names are the authority's to give."""
    with scratch() as d:
        (d / "conf").write_text("[req]\ndistinguished_name = dn\n[dn]\n")
        return openssl("req", "-new", "-key", Secret(key), "-config", d / "conf", "-sha256", "-subj", "/CN=dovelane").decode()


def request_key(csr):
    """The public key of a request, whose own signature is good; Trouble otherwise."""
    openssl("req", "-verify", "-noout", given=csr.encode())
    key = openssl("req", "-pubkey", "-noout", given=csr.encode())
    if b"NIST CURVE: P-256" not in openssl("pkey", "-pubin", "-noout", "-text", given=key):
        raise Trouble("the request's key is not of the curve P-256")
    return key.decode()


def key_id(public):
    """Names a public key (PEM)."""
    return hashlib.sha256(openssl("pkey", "-pubin", "-outform", "DER", given=public.encode())).hexdigest()


def is_address(host):
    return bool(re.fullmatch(r"[0-9.]+", host)) or ":" in host


def alternatives(name, host):
    return ", ".join(dict.fromkeys([f"DNS:{name}", f"IP:{host}" if is_address(host) else f"DNS:{host}"]))


def sign(ca_key, ca_cert, csr, name, san, days=DAYS, seconds=None):
    """A certificate for the request's key, with these names. It begins an hour ago: clocks differ a little."""
    request_key(csr)
    now = datetime.datetime.now(datetime.timezone.utc)
    start = now - datetime.timedelta(hours=1)
    end = now + (datetime.timedelta(seconds=seconds) if seconds else datetime.timedelta(days=days))
    with scratch() as d:
        (d / "ca.crt").write_text(ca_cert)
        (d / "csr").write_text(csr)
        (d / "index.txt").write_text("")
        (d / "serial").write_text(secrets.token_hex(16).replace("00", "a1"))
        (d / "conf").write_text(f"""[ca]
default_ca = a
[a]
database = {d}/index.txt
serial = {d}/serial
new_certs_dir = {d}
default_md = sha256
policy = p
unique_subject = no
copy_extensions = none
[p]
commonName = supplied
[x]
basicConstraints = critical,CA:FALSE
keyUsage = critical,digitalSignature
extendedKeyUsage = serverAuth,clientAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = {san}
""")
        openssl("ca", "-batch", "-notext", "-config", d / "conf", "-extensions", "x", "-subj", f"/CN={name}", "-cert", d / "ca.crt", "-keyfile", Secret(ca_key), "-in", d / "csr",
                "-out", d / "crt", "-startdate", start.strftime("%Y%m%d%H%M%SZ"), "-enddate", end.strftime("%Y%m%d%H%M%SZ"))
        return (d / "crt").read_text()


def fingerprint(cert):
    """SHA-256 of a certificate (PEM)."""
    return hashlib.sha256(openssl("x509", "-outform", "DER", given=cert.encode())).digest()


def public_key(cert):
    return openssl("x509", "-pubkey", "-noout", given=cert.encode()).decode()


def belongs(cert, ca_cert, key=None):
    """Why this certificate cannot be used, or None."""
    with scratch() as d:
        (d / "ca").write_text(ca_cert)
        (d / "crt").write_text(cert)
        try:
            openssl("verify", "-CAfile", d / "ca", d / "crt")
        except Trouble as e:
            return f"it is not of this group's authority, or not valid now: {e}"
    if key is not None and openssl("pkey", "-pubout", given=key.encode()).decode() != public_key(cert):
        return "it is not that of this host's key"
    return None


def dates(cert):
    """(from, until), seconds since 1970."""
    said = openssl("x509", "-noout", "-startdate", "-enddate", "-dateopt", "iso_8601", given=cert.encode()).decode()
    found = [datetime.datetime.strptime(date, "%Y-%m-%d %H:%M:%SZ").replace(tzinfo=datetime.timezone.utc).timestamp() for date in re.findall(r"=(.*Z)", said)]
    return found[0], found[1]


# ---- signatures of texts ----

def sign_text(key, text):
    return base64.b64encode(openssl("dgst", "-sha256", "-sign", Secret(key), given=text)).decode()


def signed(public, text, signature):
    """Whether the key (PEM, public) signed the text."""
    try:
        raw = base64.b64decode(signature, validate=True)
    except ValueError:
        return False
    with scratch() as d:
        (d / "pub").write_text(public)
        (d / "sig").write_bytes(raw)
        try:
            openssl("dgst", "-sha256", "-verify", d / "pub", "-signature", d / "sig", given=text)
            return True
        except Trouble:
            return False
