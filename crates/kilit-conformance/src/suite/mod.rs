//! The suite: one file a theme. Each case is a plain async function over a [`Subject`](crate::Subject).

use crate::{Case, case::Ability};

mod support;

/// The one list of the cases. Each says in brackets what it asks for.
macro_rules! cases {
    ($d:tt $($theme:ident { $($case:ident [$($ability:ident)*],)+ })+) => {
        $(pub mod $theme;)+

        /// Every case.
        pub static CASES: &[Case] = &[
            $($(Case {
                name: concat!(stringify!($theme), "::", stringify!($case)),
                asks: &[$(Ability::$ability),*],
                run: |subject| Box::pin($theme::$case(subject)),
            },)+)+
        ];

        /// Makes a test of every case for every column, and `COLUMNS`.
        #[macro_export]
        macro_rules! suite {
            ($d($d column:ident: $d set_up:path,)+) => {
                /// Every engine, in every way it is set up.
                pub static COLUMNS: &[$crate::Column] = &[$d($crate::Column {
                    name: stringify!($d column),
                    set_up: || Box::pin($d set_up()),
                    agent: env!("CARGO_BIN_EXE_kilit-agent"),
                }),+];

                $d(mod $d column {
                    fn run(case: &str) {
                        let own = |column: &&$crate::Column| column.name == stringify!($d column);
                        $crate::run(case, super::COLUMNS.iter().find(own).expect("it is listed"));
                    }

                    $(mod $theme {
                        $(#[test]
                        fn $case() {
                            super::run(concat!(stringify!($theme), "::", stringify!($case)));
                        })+
                    })+
                })+
            };
        }
    };
}

cases! { $
    exclusion {
        many_tasks [],
        many_clients [],
        many_processes [Processes],
        killed_and_stopped_processes [Processes],
        no_reentrance [],
        blocking_threads [],
    }
    tokens {
        rise_over_release_and_drop [Tokens],
        rise_over_a_hold_taken_away [Tokens TakeAway],
        rise_over_eviction [Tokens Evict],
        rise_over_expiry [Tokens Leases Link],
        rise_over_kill [Tokens Processes],
        never_fall_over_a_restart [Tokens Restart],
        rise_in_the_order_of_grants [Tokens],
        of_two_names_rise_each [Tokens],
        are_exact_near_two_to_the_53 [Tokens Counter],
        end_before_two_to_the_63 [Tokens Counter],
        belong_to_the_claim [Tokens],
    }
    loss {
        none_in_a_quiet_run [],
        is_noticed_before_the_next_grant [Leases Link],
        the_alarm_comes_before_the_next_grant [Leases Link],
        is_noticed_before_the_next_grant_when_answers_are_slow [Leases Link],
        at_risk_then_held [Leases Link],
        of_an_ended_hold_is_noticed [Break],
        of_an_evicted_hold_is_noticed [Evict],
        of_a_clock_that_jumps_is_noticed [Leases Jump],
        of_a_restart_is_noticed [Leases Restart],
        stays [TakeAway],
        stops_the_work [TakeAway],
        of_the_answer_leaves_nothing_unknown [Link],
    }
    cancel {
        acquire_at_every_await_point [],
        release_at_every_await_point [],
        run_and_shutdown_at_every_await_point [],
        thousands_of_random_drops [],
        random_drops_under_faults [Link],
        leaks_neither_descriptors_nor_threads [Url],
        a_late_claim_is_barred [Leases],
        a_claim_that_travels_is_barred [Link],
        a_waiter_that_gives_up_touches_no_one [],
    }
    release {
        goes_by_identity [],
        twice_is_once [],
        of_a_lost_lock_says_so [TakeAway],
        renewal_never_creates [],
        by_drop_frees [],
        of_a_killed_process_is_the_engines [Processes],
    }
    names {
        each_is_a_lock [],
        all_pairs_differ [],
        refusals_are_the_same_everywhere [],
    }
    edges {
        of_the_ttl [],
        of_the_wait [],
        of_the_other_terms [],
        an_idle_waiter_is_idle [Url],
    }
    lifecycle {
        a_drop_outside_a_runtime [],
        a_drop_in_a_panic [],
        a_task_that_panics [],
        a_runtime_that_ends [],
        a_guard_outlives_its_runtime [],
        a_blocked_runtime_keeps_its_hold [],
        a_forgotten_guard_ends [],
        a_client_is_as_good_as_its_last_guard [],
        a_handle_is_usable_after_a_loss [TakeAway],
        shutdown_ends_all_and_closes [],
        shutdown_while_waiting [],
        shutdown_reports_every_error [Link],
    }
    blocking {
        has_the_same_answers [],
        works_within_a_runtime [],
    }
    shared {
        holds_are_beside_each_other [Shared],
        excludes_exclusive [Shared],
        readers_and_writers_under_contention [Shared],
        a_writer_is_not_starved [Shared Fifo],
        has_no_token_and_no_correctness [Shared],
        is_refused [NoShared],
        permits_are_counted [Permits],
        permits_are_refused [NoPermits],
    }
    terms {
        max_hold_ends_the_hold [],
        max_hold_is_no_minimum [],
        lock_delay_after_a_vanished_holder [Leases Link],
        lock_delay_after_a_killed_process [Processes],
        no_lock_delay_after_a_release [],
        correctness_is_refused [WeakTokens],
        correctness_is_granted [FitTokens],
        needs_are_all_listed [],
    }
    inspect {
        shows_the_holder [],
        shows_waiters [],
        lists_what_is_held [],
        disturbs_no_one [],
        evicts_by_token_and_by_owner [Evict],
        evicts_no_other [Evict],
        says_that_it_cannot_evict [NoEvict],
    }
    fence {
        refuses_the_holder_that_did_not_learn [Tokens TakeAway],
        refuses_a_stopped_process [Tokens Leases Processes],
        never_refuses_the_rightful [Tokens],
    }
    waiting {
        everyone_is_served [],
        everyone_is_served_between_processes [Processes],
        no_wake_up_is_lost [],
        goes_past_a_killed_waiter [Processes],
        goes_past_a_stopped_waiter [Processes],
        gives_up_in_time_when_nobody_answers [Link],
        an_ended_hold_wakes_a_waiter [Break],
        an_expired_hold_wakes_a_waiter [Leases Link],
        is_first_come_first_served [Fifo],
        goes_past_a_waiter_that_left [Fifo],
        keeps_its_place [Fifo],
    }
}
