//! Bad input and broken worlds, through the real program: a real API server, the simulated
//! hypervisor, and the test in the place of Cluster API core.
//!
//! Each case breaks one thing, reads what the machine's condition says of it, mends it, and sees the
//! machine come up by itself and go without leaving anything. All cases run at once on one control
//! plane and one manager, each in a namespace and with a hypervisor of its own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]
#![allow(
    clippy::match_wild_err_arm,
    clippy::manual_assert,
    clippy::format_push_string,
    clippy::redundant_closure_for_method_calls,
    clippy::too_many_lines,
    clippy::type_complexity
)]

mod addresses;
mod boot;
mod bootstrap;
mod case;
mod copies;
mod credentials;
mod departure;
mod hands;
mod limits;
mod losses;
mod nodes;
mod nonsense;
mod objects;
mod quiet;
mod silence;
mod stage;
mod storage;
mod strange;
mod tasks;
mod templates;

use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Trial};

/// Cases wait much and compute little; more at once would only wait for one API server.
const AT_ONCE: usize = 24;

type Running = Pin<Box<dyn Future<Output = ()>>>;
/// A case with its name.
type Named = (&'static str, fn() -> Running);

macro_rules! cases {
    ($($module:ident { $($name:ident)+ })+) => {
        [$($((
            concat!(stringify!($module), "::", stringify!($name)),
            (|| Box::pin($module::$name()) as Running) as fn() -> Running,
        )),+),+]
    };
}

const CASES: &[Named] = &cases! {
    credentials {
        a_url_that_cannot_be_is_told_with_the_form_that_is_wanted
        missing_keys_of_the_secret_are_named
        a_missing_secret_is_named_and_waited_for
        a_refused_token_is_told_with_its_secret
        a_token_that_sees_nothing_is_told_what_it_lacks
        a_missing_privilege_is_named_with_its_path
        a_revoked_token_keeps_a_machine_ready_and_its_vm_from_harm
        an_endpoint_that_is_down_is_told_and_waited_for
        an_endpoint_that_hangs_holds_up_nobody_else
        a_certificate_that_is_not_trusted_is_told_with_the_remedy
    }
    templates {
        a_template_that_does_not_exist_is_waited_for
        a_wrong_source_node_is_told_with_the_right_one
        an_unknown_source_node_is_told_with_those_there_are
        a_selector_needs_exactly_one_template
        a_disk_that_the_template_lacks_is_told_with_those_it_has
        a_device_that_proxmox_cannot_have_is_told_with_its_field
    }
    addresses {
        an_exhausted_pool_is_named_and_a_freed_address_is_taken
        a_pool_that_does_not_exist_is_named_and_waited_for
        a_metric_that_is_no_number_is_told_with_its_pool
        a_kind_of_pool_that_does_not_exist_is_refused_by_the_api_server
    }
    storage {
        a_full_storage_at_the_clone_is_told
        a_full_storage_at_the_upload_is_told
        a_node_without_storage_for_the_seed_is_told
        a_full_storage_is_left_for_one_that_takes_the_seed
        a_seed_that_went_before_its_drive_is_stored_anew_whatever_the_words
        a_seed_is_deleted_where_it_was_put_though_its_vm_moved
    }
    strange {
        a_server_that_names_no_task_is_looked_at_instead
        a_server_with_task_ids_of_its_own_kind_is_looked_at_instead
        a_server_that_tells_nothing_of_its_tasks_is_looked_at_instead
        what_the_list_of_the_cluster_lacks_is_asked_for
        numbers_that_are_texts_make_no_difference
        a_server_that_refuses_purge_destroys_without_it
    }
    bootstrap {
        a_missing_secret_is_waited_for
        a_secret_without_value_is_told
        an_unknown_format_is_told_with_the_known_ones
    }
    nodes {
        an_unknown_target_is_told_with_the_nodes_there_are
        unknown_allowed_nodes_are_named
        a_node_that_is_offline_is_waited_for
        a_node_in_maintenance_is_waited_for
        a_range_with_nothing_free_is_told
        numbers_of_guests_that_the_credentials_do_not_show_are_passed_over
        nodes_without_room_are_told_with_what_they_have
    }
    tasks {
        a_vmid_that_somebody_else_takes_is_given_up
        a_vmid_that_a_guest_takes_whom_nobody_shows_us_is_given_up
        a_clone_that_fails_once_is_tried_again
        a_clone_that_always_fails_is_tried_less_and_less
        a_clone_that_was_cut_short_is_told_with_the_remedy
        a_start_that_fails_is_told_and_tried_again
        a_locked_vm_is_waited_for_before_its_configuration
        a_locked_vm_is_waited_for_before_its_end
        a_protected_vm_is_left_alone_until_the_protection_goes
        a_clone_that_comes_after_its_answer_was_lost_is_not_left_behind
        an_upload_that_comes_after_its_answer_was_lost_is_not_left_behind
    }
    boot {
        an_agent_that_never_answers_is_told_with_the_remedies
        a_failed_cloud_init_fails_the_machine_with_the_guests_words
        a_degraded_cloud_init_makes_a_machine_ready_with_a_warning
    }
    hands {
        a_vm_stopped_by_hand_is_started_again
        a_vm_destroyed_by_hand_is_not_replaced
        a_vm_whose_uuid_was_changed_keeps_its_address_until_it_is_told_whose_it_is
        a_number_that_a_machine_of_another_proxmox_has_too_does_not_keep_a_seed
        a_vm_whose_machine_and_cluster_were_deleted_first_goes_with_its_object
        a_vm_moved_by_hand_is_followed
        a_node_that_reboots_gets_its_vm_back
        a_vm_paused_by_hand_goes_on
        a_vm_in_ha_is_taken_out_of_it_before_it_goes
        a_guest_shuts_down_first_where_that_is_asked_for
        a_paused_cluster_is_left_alone
    }
    copies {
        what_guards_a_template_does_not_guard_its_clones
        machines_that_come_with_one_number_get_numbers_of_their_own
        a_machine_that_records_the_vm_of_another_leaves_it_alone
        an_agent_that_executes_nothing_is_told_with_the_remedy
    }
    silence {
        of_the_templates_node_before_the_clone
        of_the_templates_node_during_the_clone
        of_the_vms_node_at_its_configuration
        of_the_vms_node_when_it_goes_down_at_its_configuration
        of_the_vms_node_when_it_goes_down_at_the_boot
        of_the_vms_node_at_the_upload
        of_the_vms_node_at_the_start
        of_the_vms_node_at_the_boot
        of_the_vms_node_when_it_is_ready
        of_the_vms_node_when_its_seed_goes
        of_the_vms_node_at_the_stop
        of_the_whole_cluster_without_quorum
        of_the_vms_node_at_the_end
    }
    departure {
        without_credentials_says_so_and_goes_on_when_they_are_back
        without_a_template_and_with_a_broken_spec_goes_its_way
        of_a_vm_with_snapshots_spare_disks_and_replication_leaves_none_of_them
        of_a_guest_that_does_not_heed_the_shutdown_pulls_the_plug
        by_other_hands_is_told_with_the_vm_that_is_left
        does_not_begin_with_a_finalizer_that_was_taken_off
        of_a_machine_whose_node_was_removed_says_what_releases_it
        of_a_machine_whose_cluster_was_torn_away_waits_for_its_return
    }
    losses {
        of_the_template_in_mid_clone
        of_the_iso_storage_at_the_upload
        of_the_iso_storage_before_the_drive
        of_the_iso_storage_before_the_start
        of_the_iso_storage_of_machines_that_are_up
        of_a_claim_under_a_guest_is_told
        of_the_address_that_a_guest_was_given_is_told
        of_the_bootstrap_secret_after_its_use_harms_nobody
    }
    nonsense {
        numbers_that_no_field_can_hold
        names_that_lead_elsewhere
        status_that_nobody_wrote
        a_machine_that_cannot_be_read_any_more_is_left_alone_and_can_be_deleted
    }
    limits { a_proxy_that_asks_to_be_left_alone_is }
    quiet { ten_machines_that_are_up_cost_next_to_nothing }
};

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(AT_ONCE);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
    let runtime = Arc::new(runtime);
    let trials = CASES.iter().map(|&(name, case)| {
        let runtime = Arc::clone(&runtime);
        Trial::test(name, move || {
            runtime.block_on(case());
            Ok(())
        })
    });
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    let ended = runtime.block_on(stage::end());
    if let Err(error) = &ended {
        println!("{error:#}");
    }
    if ended.is_ok() { conclusion.exit_code() } else { ExitCode::FAILURE }
}
