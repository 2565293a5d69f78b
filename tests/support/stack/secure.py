"""An authority, certificates for the nodes, and a user of Redis for each program, as the admin guide makes them."""
import hashlib
import hmac
import secrets
import subprocess

PROGRAMS = ("dovelane-milter", "dovelane-proxy", "dovelane-relay", "dovelane", "dovelane-replicator")


def openssl(directory, *words):
    subprocess.run(["openssl", *map(str, words)], cwd=directory, check=True, timeout=60, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def authority(directory, name="ca"):
    openssl(directory, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "300", "-subj", f"/CN={name} of a test", "-keyout",
            f"{name}.key", "-out", f"{name}.crt")


def certificate(directory, name, subject="IP:127.0.0.1", by="ca", days=90):
    """NAME.crt and NAME.key in the directory."""
    openssl(directory, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
    (directory / f"{name}.ext").write_text(f"subjectAltName = {subject}\n")
    openssl(directory, "x509", "-req", "-in", f"{name}.csr", "-CA", f"{by}.crt", "-CAkey", f"{by}.key", "-CAcreateserial", "-days", str(days), "-extfile", f"{name}.ext", "-out",
            f"{name}.crt")
    return directory / f"{name}.crt", directory / f"{name}.key"


class Secure:
    """Files in a directory; what they mean to a redis.conf and a dovelane.conf."""

    def __init__(self, directory, build, sites=()):
        """sites: names of replicas, each with a user of its own at each node."""
        directory.mkdir(parents=True, exist_ok=True)
        self.directory, self.build = directory, build
        authority(directory)
        for program in PROGRAMS:
            self.user(program, secrets.token_hex(12))
        self.settings = {"node_ca_file": str(directory / "ca.crt"), "node_user_file": str(directory / "%p.user")}
        self.sites = sites
        for site in sites:
            self.user(f"dovelane-replicator:{site}", secrets.token_hex(12), f"{site}.replica")
        if sites:
            self.settings["replica_user_file"] = str(directory / "%r.replica")

    def user(self, program, password, file=None):
        path = self.directory / (file or f"{program}.user")
        path.write_text(f"{program} {password}\n")
        path.chmod(0o600)
        return path

    def password(self, name):
        """A program's, or a replica's at one node: NAME@NODE."""
        if "@" not in name:
            return (self.directory / f"{name}.user").read_text().split()[1]
        secret = (self.directory / f"{name.partition('@')[0].rpartition(':')[2]}.replica").read_text().split()[1]
        return hmac.new(secret.encode(), name.encode(), hashlib.sha256).hexdigest()

    def acl(self, *words):
        """What `dovelane acl` prints."""
        conf = self.directory / "acl.conf"
        replicas = "".join(f'replica {site} {{ id = {n}  redis = "127.0.0.1:{n}" }}\n' for n, site in enumerate(self.sites, 1))
        conf.write_text("".join(f'{key} = "{value}"\n' for key, value in self.settings.items()) + ("replicate_namespaces = { inbox }\n" if replicas else "") + replicas)
        return subprocess.run([self.build / "ctl" / "dovelane", "-c", conf, "acl", *words], check=True, timeout=60, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              text=True).stdout

    def redis_conf(self, name, port, default="user default on nopass ~* &* +@all"):
        """Lines for a node; `default` takes the place of what `dovelane acl` says about that user: tests look in as it."""
        certificate_file, key = certificate(self.directory, name)
        file = self.directory / f"{name}.acl"
        lines = self.acl().splitlines()
        file.write_text("\n".join([default or lines[0], *lines[1:]]) + "\n")
        return [f"tls-port {port}", f"tls-cert-file {certificate_file}", f"tls-key-file {key}", f"tls-ca-cert-file {self.directory}/ca.crt", "tls-auth-clients no",
                f"aclfile {file}"]
