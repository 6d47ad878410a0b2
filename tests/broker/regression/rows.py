"""
Which test is about which row.

Rows "1" to "18" are what was measured of kafka-python 3.0.12 on a real broker; rows
"R1" to "R32" are the pause tests of other clients and frameworks, carried over.
``test_rows`` checks this table against the tests' docstrings, both ways.
"""

from attrs import frozen


@frozen
class Row:
    """One situation, and the tests that put both clients into it."""

    about: str
    tests: tuple[str, ...]


def _row(about: str, *tests: str) -> Row:
    return Row(about=about, tests=tests)


ROWS = {
    "1": _row(
        "kept partitions stay paused when a member joins, leaves or dies",
        "test_listeners::test_a_listener_that_raises_once_forgets_no_pause",
        "test_rebalance_moves::test_kept_partitions_stay_paused",
        "test_rebalance_moves::test_kept_partitions_stay_paused_when_a_member_dies",
    ),
    "2": _row(
        "moved away and back, eager",
        "test_rebalance_moves::test_a_partition_that_moves_away_and_back_is_still_paused",
    ),
    "3": _row(
        "moved away and back, cooperative",
        "test_rebalance_moves::test_a_partition_that_moves_away_and_back_is_still_paused",
    ),
    "4": _row(
        "the loop of KAFKA-13463",
        "test_gained::test_the_loop_of_kafka_13463",
        "test_gained::test_the_loop_of_kafka_13463_with_nothing_assigned_between",
    ),
    "5": _row(
        "max.poll.interval exceeded",
        "test_lost_membership::test_max_poll_interval_exceeded",
    ),
    "6": _row(
        "session expired at the broker",
        "test_lost_membership::test_session_expired_at_the_broker",
    ),
    "7": _row(
        "heartbeat answers UNKNOWN_MEMBER_ID or ILLEGAL_GENERATION",
        "test_lost_membership::test_a_heartbeat_says_that_the_membership_is_over",
        "test_lost_membership::test_an_injected_heartbeat_error_ends_the_membership",
    ),
    "8": _row(
        "subscribe, unsubscribe, assign: away and back",
        "test_subscription_changes::test_subscribed_away_and_back",
        "test_subscription_changes::test_subscribed_away_and_back_without_a_group",
        "test_subscription_changes::test_assigned_away_and_back",
    ),
    "9": _row(
        "topic deleted and created again",
        "test_subscription_changes::test_a_topic_deleted_and_created_again",
    ),
    "10": _row(
        "pause before the first poll",
        "test_pausing::test_pause_before_the_first_poll",
    ),
    "11": _row(
        "pause of a known and an unknown partition",
        "test_pausing::test_a_pause_takes_effect_wholly_or_not_at_all",
    ),
    "12": _row(
        "resume starvation",
        "test_starvation::test_resume_after_another_partition_was_read_between",
    ),
    "13": _row(
        "pause and resume around in-flight fetches",
        "test_starvation::test_pausing_around_fetches_in_flight_loses_nothing",
    ),
    "14": _row(
        "forgotten join: the silent zombie",
        "test_forgotten_join::test_a_new_topic_while_another_member_is_slow",
        "test_forgotten_join::test_a_changed_subscription_whose_join_outlasts_the_poll",
    ),
    "14a": _row(
        "the same with a join that is not forgotten",
        "test_forgotten_join::test_a_new_topic_while_another_member_is_slow",
    ),
    "15": _row(
        "a leader whose assignor takes 0.3 s",
        "test_forgotten_join::test_a_leader_whose_assignor_is_slow",
    ),
    "16": _row(
        "fenced static member",
        "test_lost_membership::test_a_fenced_static_member_raises_on_every_later_poll",
    ),
    "17": _row(
        "commit() in a rebalance listener",
        "test_listeners::test_an_asynchronous_commit_on_revocation_does_not_hang",
        "test_listeners::test_a_commit_in_a_listener_is_refused_with_what_works",
    ),
    "18": _row(
        "what stock does right: seeks, commits, hand-over, growth",
        "test_positions::test_a_seek_wins_over_parked_data",
        "test_positions::test_seek_to_beginning_and_end_while_paused",
        "test_positions::test_commits_while_paused_are_what_was_delivered",
        "test_subscription_changes::test_a_wider_subscription_keeps_pauses",
        "test_subscription_changes::test_partitions_added",
        "test_subscription_changes::test_a_paused_partition_is_handed_over_where_it_stood",
    ),
    "R1": _row(
        "paused() follows pause and resume",
        "test_pausing::test_paused_follows_pause_and_resume",
        "test_pausing::test_levels_have_their_own_view",
    ),
    "R2": _row(
        "pause after the request left",
        "test_fetching::test_a_response_that_arrives_after_the_pause_waits_for_the_resume",
    ),
    "R3": _row(
        "no fetch for a paused partition",
        "test_fetching::test_no_fetch_is_sent_for_a_paused_partition",
        "test_fetching::test_no_fetch_is_sent_at_any_level",
    ),
    "R4": _row(
        "prefetched data delivered without a new fetch",
        "test_fetching::test_data_that_is_here_is_delivered_after_resume_without_a_fetch",
    ),
    "R5": _row(
        "every subset paused",
        "test_fetching::test_every_subset_of_four_partitions",
    ),
    "R6": _row(
        "half-read batch parked, another consumed, resume",
        "test_starvation::test_resume_after_another_partition_was_read_between",
    ),
    "R7": _row(
        "seek while paused wins over parked data",
        "test_positions::test_a_seek_wins_over_parked_data",
    ),
    "R8": _row(
        "paused before its first position",
        "test_positions::test_seek_to_beginning_and_end_while_paused",
        "test_positions::test_a_partition_paused_before_its_first_position_gets_one",
    ),
    "R9": _row(
        "pending revocation is not paused",
        "test_listeners::test_paused_does_not_list_what_is_being_revoked",
    ),
    "R10": _row(
        "resume at exactly the next offset",
        "test_fetching::test_resume_goes_on_at_the_very_next_offset",
    ),
    "R11": _row(
        "pause kept over a changed subscription",
        "test_subscription_changes::test_subscribed_away_and_back",
        "test_subscription_changes::test_a_wider_subscription_keeps_pauses",
    ),
    "R12": _row(
        "pause, seek, resume in listeners",
        "test_listeners::test_pause_seek_and_resume_in_a_listener_stand",
        "test_positions::test_a_pause_before_the_first_record_keeps_the_sought_start",
    ),
    "R13": _row(
        "commits while paused",
        "test_positions::test_commits_while_paused_are_what_was_delivered",
    ),
    "R14": _row(
        "1,000 empty polls, then resume",
        "test_fetching::test_a_thousand_empty_polls_drop_nothing",
    ),
    "R15": _row(
        "1,000 cycles, exact count and order",
        "test_starvation::test_a_thousand_cycles_of_pause_and_resume",
    ),
    "R16": _row(
        "lose, another commits, regain: at the commit, paused",
        "test_rebalance_moves::test_it_comes_back_paused_at_what_the_other_member_committed",
    ),
    "R17": _row(
        "pause before the first record keeps the start",
        "test_positions::test_a_pause_before_the_first_record_keeps_the_sought_start",
    ),
    "R18": _row(
        "needless pause and resume are no-ops",
        "test_pausing::test_pause_and_resume_again_and_of_what_flows_change_nothing",
        "test_pausing::test_resume_of_what_is_not_assigned_is_no_error",
        "test_pausing::test_pause_and_resume_are_idempotent_at_every_level",
        "test_rebalance_moves::test_kept_partitions_stay_paused",
    ),
    "R19": _row(
        "pause in the middle of a batch and between batches",
        "test_fetching::test_pause_in_the_middle_and_at_the_end_of_a_batch",
    ),
    "R20": _row(
        "commit on revoke, buffers purged, close in the middle",
        "test_listeners::test_an_asynchronous_commit_on_revocation_does_not_hang",
        "test_listeners::test_close_in_the_middle_of_a_batch",
        "test_subscription_changes::test_what_was_fetched_for_an_ownership_that_ended_is_thrown_away",
    ),
    "R21": _row(
        "500 partitions, pause and resume all in the listener",
        "test_starvation::test_five_hundred_partitions_paused_and_resumed_in_the_listener",
    ),
    "R22": _row(
        "ten rounds: one silent, the others flow",
        "test_starvation::test_ten_rounds_one_is_silent_and_the_other_flows",
    ),
    "R23": _row(
        "levels are independent layers",
        "test_pausing::test_layers_are_independent",
    ),
    "R24": _row(
        "reassigned: paused comes back paused, resumed resumed",
        "test_rebalance_moves::test_a_partition_that_moves_away_and_back_is_still_paused",
        "test_rebalance_moves::test_what_was_resumed_comes_back_flowing",
    ),
    "R25": _row(
        "re-pause over two rebalances; resume fetches",
        "test_rebalance_moves::test_a_partition_that_moves_away_and_back_is_still_paused",
        "test_rebalance_moves::test_still_paused_when_it_returns_two_rebalances_later",
    ),
    "R26": _row(
        "pause before start, before assignment, manual assign",
        "test_pausing::test_pause_before_the_first_poll",
        "test_pausing::test_pause_before_subscribe_and_before_assign",
        "test_pausing::test_pause_right_after_assign",
    ),
    "R27": _row(
        "a machine's pause and a person's",
        "test_pausing::test_a_machines_pause_and_a_persons_pause_do_not_touch",
    ),
    "R28": _row(
        "newly gained partitions arrive paused",
        "test_gained::test_partitions_gained_later_arrive_paused",
    ),
    "R29": _row(
        "bad arguments; all paused does not spin",
        "test_pausing::test_bad_arguments_change_nothing",
        "test_pausing::test_all_paused_waits_instead_of_spinning",
    ),
    "R30": _row(
        "paused and polling keeps the membership",
        "test_lost_membership::test_polling_keeps_a_paused_member_alive",
    ),
    "R31": _row(
        "corrupt batch of a paused partition",
        "test_fetching::test_a_corrupt_batch_of_a_paused_partition_is_told_after_resume",
    ),
    "R32": _row(
        "kept partitions flow after a rebalance, with a listener",
        "test_rebalance_moves::test_kept_partitions_that_are_not_paused_go_on",
    ),
}
