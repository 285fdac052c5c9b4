"""Drives a whole machine life through proxmoxer, an independent client.

Arguments: host:port, user, token name, token secret. Prints one line of JSON with what it saw.
"""

import io
import json
import sys

from proxmoxer import ProxmoxAPI, ResourceException
from proxmoxer.tools import Tasks

host, user, token_name, token_value = sys.argv[1:5]
api = ProxmoxAPI(
    host, user=user, token_name=token_name, token_value=token_value, verify_ssl=False, timeout=30
)
seen = {"version": api.version.get()["release"], "tasks": []}


def wait(upid):
    status = Tasks.blocking_status(api, upid, timeout=30, polling_interval=0.02)
    seen["tasks"].append([status["type"], status["exitstatus"]])


vmid = int(api.cluster.nextid.get())
node = api.nodes("pve1")
wait(node.qemu(9000).clone.post(newid=vmid, name="by-proxmoxer", full=1))
vm = node.qemu(vmid)
wait(vm.config.post(cores=4, memory=4096, tags="b;a"))
wait(vm.resize.put(disk="scsi0", size="20G"))
iso = io.BytesIO(b"\x01" * 70000)
iso.name = f"user-data-{vmid}.iso"
wait(node.storage("local").upload.post(content="iso", filename=iso))
wait(vm.config.post(ide0=f"local:iso/user-data-{vmid}.iso,media=cdrom"))
wait(vm.status.start.post())
seen["config"] = vm.config.get()
seen["status"] = vm.status.current.get()["status"]
try:
    vm.delete()
except ResourceException as error:
    seen["refused"] = [error.status_code, error.content]
wait(vm.status.stop.post())
wait(vm.delete(purge=1))
wait(node.storage("local").content(f"local:iso/user-data-{vmid}.iso").delete())
try:
    vm.config.get()
except ResourceException as error:
    seen["gone"] = [error.status_code, error.content]
try:
    node.qemu(9000).clone.post(name="a_b")
except ResourceException as error:
    seen["bad"] = [error.status_code, error.errors]
seen["log"] = Tasks.decode_log(node.tasks(node.tasks.get()[0]["upid"]).log.get())
print(json.dumps(seen))
