#include "planted.h"

#include <stdlib.h>
#include <string.h>

#include "core/cache/audit.h"

enum { FAULTS_MAX = 128 };

static struct planted faults[FAULTS_MAX];
static size_t n_faults;

static void audit_planted(kvp_cache *cache, const struct planted *fault)
{
    for (int level = 1; level <= 3; level++) {
        kvp_violation violation;
        const int is_sound = kvpi_audit(cache, level, &violation);
        if (is_sound != (level < fault->level) ||
            (!is_sound && strncmp(violation.detail, fault->said, strlen(fault->said)) != 0)) {
            print_error("%s: level %d says %s\n", fault->name, level,
                        is_sound ? "nothing" : violation.detail);
        }
        assert_int_equal(is_sound, level < fault->level);
        if (!is_sound) {
            assert_memory_equal(violation.detail, fault->said, strlen(fault->said));
            assert_memory_equal(violation.invariant, fault->said, 2);
        }
    }
}

void add_planted(const struct planted *fault)
{
    if (n_faults == FAULTS_MAX) {
        print_error("more than %d faults in one file\n", FAULTS_MAX);
        abort();
    }
    faults[n_faults++] = *fault;
}

void assert_planted(struct scene *scene)
{
    const world *w = (const world *)scene;
    assert_true(n_faults > 0);
    for (size_t i = 0; i < n_faults; i++) {
        kvp_violation violation;
        faults[i].make(scene);
        assert_true(kvpi_audit(w->cache, 3, &violation));
        assert_string_equal(violation.invariant, "");
        faults[i].plant(scene);
        audit_planted(w->cache, &faults[i]);
        free(w->arena); /* too broken to be destroyed in a build with checks */
    }
}
