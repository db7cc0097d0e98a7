/* planted: faults planted in a cache, each of which the audit must name. */
#ifndef TEST_PLANTED_H
#define TEST_PLANTED_H

#include "world.h"

struct scene; /* the test's own; its first member is its world */

struct planted {
    void (*plant)(struct scene *scene);
    const char *said; /* what the violation's detail begins with: the invariant, and more */
    int level;        /* the lowest audit that sees it; those below must not */
};

/* Make the scene anew for each fault, plant it, and audit at every level. */
void assert_planted(struct scene *scene, void (*make)(struct scene *scene),
                    const struct planted *faults, size_t n_faults);

#endif
