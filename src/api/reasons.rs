//! Types of conditions, and reasons: words that other software and people's scripts match on. Those
//! of capmox are the same to the letter; additions say so.

/// Condition that sums up all others of an object.
pub const READY: &str = "Ready";
/// Condition of the v1beta2 contract that says whether an object is paused.
pub const PAUSED: &str = "Paused";

/// Condition of a ProxmoxMachine: whether its VM is provisioned.
pub const VM_PROVISIONED: &str = "VMProvisioned";
/// Condition of a ProxmoxCluster: whether it can take machines.
pub const CLUSTER_READY: &str = "ClusterReady";

/// Condition of a ProxmoxCluster, there only when it is False: whether the certificate of Proxmox is
/// checked. `Ready` does not depend on it. An addition.
pub const CERTIFICATE_CHECKED: &str = "CertificateChecked";
/// Any certificate of Proxmox is believed. An addition.
pub const CERTIFICATE_NOT_CHECKED: &str = "CertificateNotChecked";

/// Condition of a ProxmoxCluster, there only when it is False, and only of one that capmox served before:
/// whether the manager's own credentials are used, as there. `Ready` does not depend on it. An addition.
pub const MANAGER_CREDENTIALS_USED: &str = "ManagerCredentialsUsed";
/// Those of `spec.credentialsRef` are used, where capmox used others, of the manager. An addition.
pub const CREDENTIALS_REF_USED: &str = "CredentialsRefUsed";

/// The cluster's infrastructure is not ready, as Cluster API sees it.
pub const WAITING_FOR_CLUSTER_INFRASTRUCTURE: &str = "WaitingForClusterInfrastructure";
/// The Machine has no bootstrap data yet.
pub const WAITING_FOR_BOOTSTRAP_DATA: &str = "WaitingForBootstrapData";
/// The IPAM provider has not given all addresses yet, or those given cannot be used.
pub const WAITING_FOR_STATIC_IP_ALLOCATION: &str = "WaitingForStaticIPAllocation";
/// The guest has not reported its addresses yet.
pub const WAITING_FOR_NETWORK_ADDRESSES: &str = "WaitingForNetworkAddresses";
/// The VM is being cloned.
pub const CLONING: &str = "Cloning";
/// The VM could not be cloned; it is tried again.
pub const CLONING_FAILED: &str = "CloningFailed";
/// The VM is being started, or its guest boots.
pub const POWERING_ON: &str = "PoweringOn";
/// The VM could not be started; it is tried again.
pub const POWERING_ON_FAILED: &str = "PoweringOnFailed";
/// A Proxmox task failed; the message is what Proxmox says of it.
pub const TASK_FAILURE: &str = "TaskFailure";
/// The VM exists and is being set up.
pub const VM_PROVISION_STARTED: &str = "VMProvisionStarted";
/// The VM could not be set up.
pub const VM_PROVISION_FAILED: &str = "VMProvisionFailed";
/// The VM is there no more although it was provisioned.
pub const VM_TERMINATED: &str = "VMTerminated";
/// The VM was not found.
pub const NOT_FOUND: &str = "NotFound";
/// The state of the VM is not known, because Proxmox does not say.
pub const UNKNOWN: &str = "Unknown";
/// The object is being deleted. Cluster API's word.
pub const DELETING: &str = "Deleting";
/// A step of the deletion failed; it is tried again. Cluster API's word.
pub const DELETION_FAILED: &str = "DeletionFailed";

/// Proxmox does not answer, refuses the credentials, or there are none.
pub const PROXMOX_UNREACHABLE: &str = "ProxmoxUnreachable";
/// The control plane's endpoint is not set yet.
pub const MISSING_CONTROL_PLANE_ENDPOINT: &str = "MissingControlPlaneEndpoint";
/// The ProxmoxCluster has no Cluster as its owner. An addition.
pub const WAITING_FOR_OWNER_CLUSTER: &str = "WaitingForOwnerCluster";
/// No IPAM provider serves the pools of the cluster. An addition.
pub const IPAM_PROVIDER_UNAVAILABLE: &str = "IPAMProviderUnavailable";
/// A pool of the cluster is not as it should be. An addition.
pub const IP_POOL_FAILED: &str = "IPPoolFailed";

/// Condition of a ProxmoxConnection: whether Proxmox VE answers. An addition, as all of these.
pub const ENDPOINT_REACHABLE: &str = "EndpointReachable";
/// Condition of a ProxmoxConnection: whether the certificate is checked, and trusted.
pub const CERTIFICATE_TRUSTED: &str = "CertificateTrusted";
/// Condition of a ProxmoxConnection: whether token or password are accepted.
pub const CREDENTIALS_ACCEPTED: &str = "CredentialsAccepted";
/// Condition of a ProxmoxConnection: whether the credentials have the privileges for machines.
pub const PERMISSIONS_SUFFICIENT: &str = "PermissionsSufficient";
/// Condition of a ProxmoxConnection: whether the clock of Proxmox agrees with ours. `Ready` does not
/// depend on it.
pub const CLOCK_IN_SYNC: &str = "ClockInSync";

/// No connection, or no answer in time.
pub const ENDPOINT_DOWN: &str = "EndpointDown";
/// Something else answers than Proxmox VE.
pub const NOT_PROXMOX: &str = "NotProxmox";
/// The Proxmox cluster has lost its quorum.
pub const NO_QUORUM: &str = "NoQuorum";
/// Proxmox answers with an error of its own.
pub const PROXMOX_FAILING: &str = "ProxmoxFailing";
/// The certificate is not trusted.
pub const CERTIFICATE_NOT_TRUSTED: &str = "CertificateNotTrusted";
/// The certificate is not valid at this time, by the clock of the manager's node.
pub const CERTIFICATE_NOT_VALID_NOW: &str = "CertificateNotValidNow";
/// Token or password are refused.
pub const CREDENTIALS_REFUSED: &str = "CredentialsRefused";
/// The time of the token or of its user is over.
pub const CREDENTIALS_EXPIRED: &str = "CredentialsExpired";
/// The user is disabled.
pub const USER_DISABLED: &str = "UserDisabled";
/// The token does not exist.
pub const TOKEN_UNKNOWN: &str = "TokenUnknown";
/// Privileges are missing.
pub const PRIVILEGES_MISSING: &str = "PrivilegesMissing";
/// Clocks differ.
pub const CLOCK_SKEW: &str = "ClockSkew";

/// The ProxmoxConnection may not be used from the cluster's namespace. An addition.
pub const CONNECTION_NOT_ALLOWED: &str = "ConnectionNotAllowed";
/// A ProxmoxConnection has a value that cannot be right. An addition.
pub const INVALID_CONNECTION: &str = "InvalidConnection";
/// A Secret or its key is missing. An addition.
pub const SECRET_NOT_FOUND: &str = "SecretNotFound";
/// The manager may not read a Secret. An addition.
pub const SECRET_FORBIDDEN: &str = "SecretForbidden";

/// Reason of conditions of the v1beta2 contract that are True: the object is ready.
pub const READY_REASON: &str = "Ready";
/// Reason of `Paused` when it is False.
pub const NOT_PAUSED: &str = "NotPaused";

/// `failureReason`: credentials or the object's own settings keep it from working.
pub const FAILURE_INVALID_CONFIGURATION: &str = "InvalidConfiguration";
/// `failureReason`: no VMID, node or memory is left.
pub const FAILURE_INSUFFICIENT_RESOURCES: &str = "InsufficientResources";
/// `failureReason`: no template, or more than one, has the tags asked for.
pub const FAILURE_VM_TEMPLATE_NOT_FOUND: &str = "VMTemplateNotFound";
/// `failureReason`: the guest's bootstrap failed.
pub const FAILURE_BOOTSTRAP_FAILED: &str = "BootstrapFailed";
/// `failureReason`: the VM is not the machine's, or is gone.
pub const FAILURE_UPDATE: &str = "UpdateError";
/// `failureReason`: the VM cannot be made.
pub const FAILURE_CREATE: &str = "CreateError";

/// `status.vmStatus`: no VM exists.
pub const VM_STATUS_NOT_FOUND: &str = "notfound";
/// `status.vmStatus`: the VM is being made.
pub const VM_STATUS_PENDING: &str = "pending";
/// `status.vmStatus`: the VM is provisioned.
pub const VM_STATUS_READY: &str = "ready";
