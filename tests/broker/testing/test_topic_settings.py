"""What the embedded broker says of topics' settings, and that it has no ACLs."""

from kafka.admin import (
    ConfigResource,
    ConfigResourceType,
)

from safeconsumer.group import topics


def test_a_topic_tells_the_settings_it_was_created_with(broker, admin):
    broker.create_topic("holds", 1, {"cleanup.policy": "compact"})
    broker.create_topic("orders", 3)
    holds, orders, nothing = topics.ask(admin, ("holds", "orders", "nope"))
    assert (holds.settings or {})["cleanup.policy"] == "compact"
    kept = (orders.settings or {})["retention.ms"]
    assert (orders.partitions, kept) == (3, "604800000")
    assert (nothing.partitions, nothing.settings) == (0, None)
    wanted = [ConfigResource(ConfigResourceType.TOPIC, "holds", ["cleanup.policy"])]
    assert admin.describe_configs(wanted)["topic"]["holds"].keys() == {"cleanup.policy"}


def test_the_right_to_ask_can_be_missing(broker, admin):
    broker.create_topic("orders", 1)
    broker.fail("DescribeConfigs", "TOPIC_AUTHORIZATION_FAILED")
    (refused,) = topics.ask(admin, ("orders",))
    (told,) = topics.ask(admin, ("orders",))
    assert (refused.settings, told.settings is None) == (None, False)
