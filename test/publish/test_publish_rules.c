/* What the wire says of a cache's events: the rules of kvpager/publish.h, each in a scene. */
#include <string.h>

#include "wire.h"

static struct wire wire;

static int open_wire(void **state)
{
    const kvp_publisher_config config = wire_config();
    (void)state;
    wire_open(&wire, &config);
    wire_unit(&wire, 'a', '\0', "m", NULL);
    wire_unit(&wire, 'b', 'a', "m", NULL);
    wire_unit(&wire, 'c', 'b', "m", NULL);
    wire_unit(&wire, 'd', 'b', "m", NULL);
    wire_unit(&wire, 'n', '\0', "n", NULL);
    return 0;
}

static int close_wire(void **state)
{
    (void)state;
    wire_close(&wire);
    return 0;
}

#define RULE(name) TEST_WITH(name, open_wire, close_wire)

#define assert_wire(events, expected) assert_string_equal(wire_put(&wire, events), expected)

static uint64_t units_in_use(void)
{
    kvp_publisher_stats stats;
    assert_int_equal(kvp_publisher_stats_get(wire.publisher, &stats), KVP_OK);
    return stats.units;
}

/* ----------------------------------------------------------------------------------- stored */

RULE(test_a_chain_is_one_event)
{
    assert_wire("+Gabc", "+G:abc");
    assert_wire("+Gd", "+G b:d");
}

RULE(test_a_unit_is_told_once)
{
    assert_wire("+Ga", "+G:a");
    assert_wire("+Ga", "");
    assert_wire("-Ga", "-G:a");
    assert_wire("-Ga", "");
    assert_int_equal(units_in_use(), 0);
}

RULE(test_a_unit_before_its_beginning_waits_for_it)
{
    assert_wire("+Gc", "");
    assert_wire("+Cc", "");
    assert_wire("+Gb", "");
    assert_wire("+Ga", "+G:abc +C b:c");
}

RULE(test_units_that_were_never_told_go_silently)
{
    assert_wire("+Gc -Gc", "");
    assert_int_equal(units_in_use(), 0);
}

RULE(test_each_tier_has_its_own)
{
    assert_wire("+Gab +Cab +Sb", "+G:ab +C:ab +S a:b");
    assert_wire("-Gb -Cb -Sb", "-G:b -C:b -S:b");
}

/* ---------------------------------------------------------------------------------- removed */

RULE(test_what_is_behind_a_removed_unit_goes_first_and_comes_again)
{
    assert_wire("+Gabcd", "+G:abc +G b:d");
    const char *text = wire_put(&wire, "-Ga");
    assert_true(strcmp(text, "-G:dcba") == 0 || strcmp(text, "-G:cdba") == 0);
    assert_wire("-Gd", "");
    assert_wire("+Ga", "+G:abc");
}

RULE(test_a_hidden_unit_hides_only_what_is_behind_it)
{
    assert_wire("+Gabcd -Gd -Gb", "+G:abc +G b:d -G:dcb");
    assert_wire("+Gb", "+G a:bc");
}

RULE(test_the_host_goes_on_where_the_device_ends)
{
    assert_wire("+Gab +Cb", "+G:ab +C a:b");
    assert_wire("-Gb", "-G:b");
    assert_wire("-Ga", "-G:a"); /* b stays on the host */
    assert_wire("-Cb", "-C:b");
    assert_int_equal(units_in_use(), 0);
}

/* ---------------------------------------------------------------------------------- cleared */

RULE(test_a_namespace_is_cleared_by_removals)
{
    assert_wire("+Gabc +Cab +Gn", "+G:abc +C:ab +G:n");
    assert_wire("!m", "-G:cba -C:ba");
    assert_wire("!m", "");
    assert_wire("-Gn", "-G:n");
    assert_int_equal(units_in_use(), 0);
}

RULE(test_what_a_cleared_namespace_hid_is_gone)
{
    assert_wire("+Gabcd -Ga", "+G:abc +G b:d -G:dcba");
    assert_wire("!m", "");
    assert_int_equal(units_in_use(), 0);
    assert_wire("+Ga", "+G:a");
}

RULE(test_everything_is_cleared_in_one_event)
{
    assert_wire("+Gab +Gn !*", "+G:ab +G:n clear");
    assert_int_equal(units_in_use(), 0);
    assert_wire("+Gab", "+G:ab");
}

RULE(test_a_root_that_was_never_told_is_cleared_in_silence)
{
    assert_wire("!q", "");
    assert_wire("+Ga !m +Ga", "+G:a -G:a +G:a");
}

/* ------------------------------------------------------------------------------- what is told */

RULE(test_units_with_keys_and_those_behind_them_are_not_told)
{
    const kvp_key key = {.type = 1, .begin = 0, .end = 1, .n_bytes = 1, .bytes = "s"};
    kvp_publisher_stats stats;
    wire_unit(&wire, 'k', '\0', "m", &key);
    wire_unit(&wire, 'l', 'k', "m", NULL);
    assert_wire("+Gkl +Ckl +Ga", "+G:a");
    assert_wire("-Gkl -Ckl", "");
    assert_int_equal(kvp_publisher_stats_get(wire.publisher, &stats), KVP_OK);
    assert_int_equal(stats.separate_units, 1);
    assert_int_equal(stats.stored, 1);
    assert_int_equal(stats.units, 2); /* a and its root */
}

RULE(test_tokens_that_the_wire_cannot_carry_are_not_told)
{
    wire.tokens['a' - 'a'][2] = -1;
    assert_wire("+Ga +Gb", "");
}

RULE(test_named_namespaces_alone_are_told)
{
    kvp_hash root;
    assert_int_equal(kvp_hash_root(WIRE_U, 0, "n", 1, &root), KVP_OK);
    assert_int_equal(kvp_publisher_space(wire.publisher, &root, "sql"), KVP_OK);
    assert_int_equal(kvp_publisher_space(wire.publisher, &root, "sql"), KVP_E_ARG);
    assert_wire("+Gab +Gn", "+G(sql):n");
    assert_wire("-Gab -Gn", "-G:n");
    assert_int_equal(units_in_use(), 0);
}

RULE(test_other_layer_groups_are_not_told)
{
    wire.units['a' - 'a'].group = 1;
    assert_wire("+Ga", "");
}

TEST(test_one_layer_group_is_told)
{
    kvp_publisher_config config = wire_config();
    config.group = 1;
    wire_open(&wire, &config);
    wire_unit(&wire, 'a', '\0', "m", NULL);
    wire_unit(&wire, 'n', '\0', "n", NULL);
    wire.units['a' - 'a'].group = 1;
    assert_wire("+Ga +Gn", "+G:a");
    wire_close(&wire);
}

/* --------------------------------------------------------------------------------- no room */

TEST(test_units_without_room_are_counted)
{
    kvp_publisher_config config = wire_config();
    kvp_publisher_stats stats;
    config.max_units = 3; /* a root and two units */
    wire_open(&wire, &config);
    wire_unit(&wire, 'a', '\0', "m", NULL);
    wire_unit(&wire, 'b', 'a', "m", NULL);
    wire_unit(&wire, 'c', 'b', "m", NULL);
    wire_unit(&wire, 'n', '\0', "n", NULL);
    assert_wire("+Gabc +Gn", "+G:ab");
    assert_int_equal(kvp_publisher_stats_get(wire.publisher, &stats), KVP_OK);
    assert_int_equal(stats.dropped_units, 2);
    assert_int_equal(stats.units, 3);
    assert_wire("-Gba", "-G:ba");
    assert_wire("+Gn", "+G:n");
    wire_close(&wire);
}

/* ------------------------------------------------------------------------- another's hashes */

TEST(test_hashes_of_others_are_told_as_they_are)
{
    kvp_publisher_config config = wire_config();
    config.foreign = 1;
    wire_open(&wire, &config);
    wire_unit(&wire, 'a', '\0', "m", NULL);
    wire_unit(&wire, 'b', 'a', "m", NULL);
    memset(&wire.units[0].hash, 7, sizeof(kvp_hash));
    wire.units[1].parent = wire.units[0].hash;
    assert_wire("+Gab", "+G:ab");
    wire_close(&wire);
}

TEST(test_a_circle_of_others_hashes_ends)
{
    kvp_publisher_config config = wire_config();
    config.foreign = 1;
    wire_open(&wire, &config);
    wire_unit(&wire, 'a', '\0', "m", NULL);
    wire_unit(&wire, 'b', 'a', "m", NULL);
    wire.units[0].parent = wire.units[1].hash;
    wire.units[0].position = WIRE_U;
    assert_wire("+Gb +Ga +Ca", "");
    assert_wire("-Gab -Ca", "");
    assert_int_equal(units_in_use(), 0);
    wire_close(&wire);
}

TEST_MAIN(NULL, NULL)
