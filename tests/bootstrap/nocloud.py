"""Reads the seed below argv[1] with cloud-init's own NoCloud source, and prints what it found."""

import json
import sys

from cloudinit import helpers
from cloudinit.handlers import jinja_template
from cloudinit.sources import DataSourceNoCloud

folder = sys.argv[1]
paths = helpers.Paths({"cloud_dir": folder, "run_dir": folder})
source = DataSourceNoCloud.DataSourceNoCloud({}, None, paths)
found = source._get_data()
user_data = source.userdata_raw or ""
if isinstance(user_data, bytes):
    user_data = user_data.decode()
if user_data.startswith("## template: jinja"):
    instance = {"ds": {"meta_data": source.metadata}}
    user_data = jinja_template.render_jinja_payload(user_data, "user-data", instance)
json.dump(
    {
        "found": found,
        "metadata": source.metadata,
        "network": source.network_config,
        "user_data": user_data,
    },
    sys.stdout,
)
