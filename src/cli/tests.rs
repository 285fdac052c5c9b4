use clap::CommandFactory;

use super::*;

fn run_with(arguments: &[&str], environment: &Environment) -> Result<runtime::Settings, String> {
    match parse(arguments.iter().map(OsString::from), environment) {
        Ok(Invocation::Run(settings)) => Ok(*settings),
        Ok(Invocation::Version) => Err("version".to_owned()),
        Ok(Invocation::Check(_)) => Err("check".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn run(arguments: &[&str]) -> Result<runtime::Settings, String> {
    run_with(arguments, &Environment::default())
}

#[test]
fn every_flag_has_its_place_in_the_table_of_forms() {
    let command = Cli::command();
    command.clone().debug_assert();
    for flag in
        command.get_arguments().filter(|flag| !matches!(flag.get_id().as_str(), "help" | "version"))
    {
        let name = flag.get_long().unwrap_or_default();
        let values: Vec<_> = flag.get_possible_values();
        let is_switch = values.iter().any(|value| value.matches("true", false));
        assert!(go_flags::is_known(name, !is_switch), "--{name}");
    }
}

#[test]
fn the_defaults_are_those_of_capmox() {
    let settings = run(&[]).unwrap();
    assert_eq!(settings.health, Bind::Any(8081));
    assert_eq!(settings.diagnostics, Bind::Any(8443));
    assert!(!settings.insecure_diagnostics);
    assert_eq!(settings.leader_elect, None);
    let webhooks = settings.webhooks.unwrap();
    assert_eq!(webhooks.port, 9443);
    assert_eq!(webhooks.cert_dir, PathBuf::from("/tmp/k8s-webhook-server/serving-certs"));
    assert!(settings.own.insecure);
    assert_eq!(settings.namespace, None);
    assert!(!settings.embedded_ipam);
}

#[test]
fn the_arguments_of_the_released_deployment_are_taken_as_they_stand() {
    let settings = run(&[
        "--leader-elect",
        "--feature-gates=ClusterTopology=false",
        "--diagnostics-address=:8443",
        "--insecure-diagnostics=false",
        "--v=0",
    ])
    .unwrap();
    assert_eq!(settings.leader_elect, Some(runtime::LeaseTimes::default()));
    assert_eq!(settings.notes.len(), 1, "{:?}", settings.notes);
}

#[test]
fn flags_are_read_in_any_form() {
    let settings = run(&[
        "-v=4",
        "--kubeconfig",
        "/k",
        "-leader-elect=true",
        "--leader-elect-lease-duration=1m30s",
        "--leader-elect-renew-deadline",
        "60s",
        "--enable-webhooks=False",
        "--namespace=",
        "--watch-filter=blue",
        "--health-probe-bind-address=0",
        "--concurrency",
        "3",
        "--max-clones-per-storage",
        "2",
        "--iso-storage",
        "cephfs, local",
        "--logging-format=json",
        "--tls-min-version=VersionTLS13",
        "--vmodule=x=1",
        "run",
    ])
    .unwrap();
    assert_eq!(settings.logging, Logging { verbosity: 4, format: LogFormat::Json });
    assert_eq!(settings.kubeconfig, Some(PathBuf::from("/k")));
    assert_eq!(settings.leader_elect.unwrap().duration, Duration::from_secs(90));
    assert_eq!(settings.webhooks, None);
    assert_eq!(settings.namespace, None);
    assert_eq!(settings.watch_filter.as_deref(), Some("blue"));
    assert_eq!(settings.health, Bind::Off);
    assert_eq!(settings.concurrency, 3);
    assert_eq!((settings.clones.endpoint, settings.clones.storage), (32, 2));
    assert_eq!(settings.iso_storages, ["cephfs", "local"].map(|name| name.parse().unwrap()));
    assert_eq!(settings.tls_min_version, TlsVersion::V13);
    assert!(settings.notes.iter().any(|note| note.contains("--vmodule")), "{:?}", settings.notes);
}

#[test]
fn what_is_not_understood_is_refused_with_what_was_meant() {
    for (arguments, telling) in [
        (&["--leader-elekt"][..], "--leader-elect"),
        (&["--proxmox-insecur=false"], "--proxmox-insecure"),
        (&["--leader-elect=maybe"], "true, false"),
        (&["--leader-elect-lease-duration=15"], "15s"),
        (&["--leader-elect-lease-duration=5s", "--leader-elect"], "longer"),
        (&["--leader-elect-retry-period=-2s"], "longer than nothing"),
        (&["--diagnostics-address=8443"], ":PORT"),
        (&["--feature-gates=ClusterTopology"], "Name=true"),
        (&["--logging-format=xml"], "text or json"),
        (&["--iso-storage=local:iso"], "names of storages"),
        (&["--v"], "value is required"),
        (&["--concurrency=0"], "1..=1000"),
        (&["--connection-status=no"], "expected auto, write or read"),
        (&["rum"], "run"),
    ] {
        let error = run(arguments).unwrap_err();
        assert!(error.contains(telling), "{arguments:?}: {error}");
    }
    assert_eq!(run(&["version"]).unwrap_err(), "version");
    assert!(run(&["--version"]).unwrap_err().contains(env!("CARGO_PKG_VERSION")));
}

#[test]
fn the_environment_decides_on_certificates_unless_the_flag_does() {
    for (variable, flag, wanted) in [
        (None, None, true),
        (Some("true"), None, true),
        (Some("True"), None, false),
        (Some("false"), None, false),
        (Some(""), None, false),
        (Some("false"), Some("--proxmox-insecure"), true),
        (Some("true"), Some("--proxmox-insecure=false"), false),
    ] {
        let insecure = variable.map(str::to_owned);
        let environment = Environment { insecure, ..Environment::default() };
        let settings = run_with(flag.as_slice(), &environment).unwrap();
        assert_eq!(settings.own.insecure, wanted, "{variable:?} {flag:?}");
    }
}

#[test]
fn secrets_of_the_environment_are_not_in_what_is_printed() {
    let environment = Environment {
        url: "https://pve".to_owned(),
        token: "a@pve!b=s3cret".to_owned(),
        secret: "s3cret".to_owned(),
        insecure: None,
    };
    let settings = run_with(&[], &environment).unwrap();
    assert!(!format!("{settings:?}").contains("s3cret"));
}
