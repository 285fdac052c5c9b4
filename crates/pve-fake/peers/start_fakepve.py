"""Starts fakepve with what the tests need and prints where it is as one line of JSON.

Reads the cluster from a JSON file in the simulator's own seed format, as far as fakepve has the
notion: nodes, storages, VMs, tokens, users, pools, ACL entries. Ends when its standard input does.
"""

import asyncio
import json
import sys
import tempfile

from fakepve.certs import make_cert
from fakepve.model import FakeVm
from fakepve.server import FakePve


def build(seed, time_scale):
    pve = FakePve(user="root@pam", password="secret", host="127.0.0.1", port=0)
    pve.time_scale = time_scale
    for node in seed["nodes"]:
        pve.add_node(node["name"])
    if not any(node["name"] == "pve1" for node in seed["nodes"]):
        del pve.nodes["pve1"]
    pve.storages.clear()
    for storage in seed["storages"]:
        pve.storages[storage["name"]] = {
            "type": storage["type"],
            "active": 1,
            "content": ",".join(storage["content"]),
            "files": set(),
            **({"shared": 1} if storage.get("shared") else {}),
        }
    for vm in seed["vms"]:
        config = dict(vm["config"])
        template = config.pop("template", "0") == "1"
        pve.add_vm(
            vm["vmid"],
            config.get("name", f"VM {vm['vmid']}"),
            node=vm["node"],
            status="running" if vm.get("running") else "stopped",
            config=config,
            template=template,
        )
    for user in seed["users"]:
        pve.users[user["id"]] = user["password"]
    for token in seed["tokens"]:
        pve.apitokens[token["id"]] = token["secret"]
    for name, members in seed.get("pools", {}).items():
        pve.pools[name] = set(members)
    for entry in seed.get("acl", []):
        pve.grant(entry["who"], entry["path"], *entry["privileges"])
    return pve


def agent_of(vm):
    """An agent that answers, for every VM that has one configured: fakepve's is set from inside only."""
    done = {"exited": True, "exitcode": 0, "out-data": "status: done\n"}
    return {"exec": {"cloud-init status": done}} if "agent" in vm.config else None


FakeVm.agent = property(agent_of, lambda vm, value: None)


async def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        seed = json.load(file)
    time_scale = float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
    pve = build(seed, time_scale)
    with tempfile.TemporaryDirectory(prefix="fakepve-") as folder:
        certificate, key, _ = make_cert(folder, hosts=("127.0.0.1",))
        with open(certificate, encoding="utf-8") as file:
            pem = file.read()
        await pve.start(certificate, key)
    print(json.dumps({"url": pve.url, "certificate": pem}), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await pve.stop()


asyncio.run(main())
