"""Small models in directories, and the servers that tests of many machines start on loopback."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fusion_engine as fe
from tests.support.nets import Net

SERVER = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


def model(weight: float = 2.0) -> bytes:
    """A model in which the default rules fuse one batch norm."""
    net = Net()
    conv = net.conv(net.input((1, 2, 2, 1), name="x"), weights=[[[[weight]]]])
    net.output(net.batch_norm(conv, [1.0], [2.0], [3.0], [4.0], name="n"))
    return fe.dumps(net.graph)


def files(folder: Path) -> dict[str, bytes]:
    """The models below a directory, by their paths below it; whatever else lies there is an error."""
    found = {}
    for path in sorted(folder.rglob("*")):
        below = path.relative_to(folder)
        if path.is_file() and below.parts[0] != ".fusion-engine":
            assert path.suffix == ".armnn", f"{path} should not be there"
            found[below.as_posix()] = path.read_bytes()
    return found


@contextmanager
def environment(settings: dict[str, str]) -> Iterator[None]:
    """Environment variables, for processes that are started too."""
    former = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in former.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def s3() -> Iterator[Any]:
    """An S3 server on loopback with an empty bucket ``zoo``, as an fsspec file system that sees what is there."""
    import fsspec

    with subprocess.Popen([sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            settings = {
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{int(server.stdout.readline())}",
                "AWS_ACCESS_KEY_ID": "test",
                "AWS_SECRET_ACCESS_KEY": "test",
                "AWS_DEFAULT_REGION": "us-east-1",
                "NO_PROXY": "127.0.0.1",
                "no_proxy": "127.0.0.1",
            }
            with environment(settings):
                fsspec.get_filesystem_class("s3").clear_instance_cache()
                system = fsspec.filesystem("s3", use_listings_cache=False)
                system.mkdir("zoo")
                yield system
                fsspec.get_filesystem_class("s3").clear_instance_cache()
        finally:
            server.stdin.close()
