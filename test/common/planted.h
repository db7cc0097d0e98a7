/* planted: faults planted in a cache, each of which the audit must name. */
#ifndef TEST_PLANTED_H
#define TEST_PLANTED_H

#include "world.h"

struct scene; /* the test's own; its first member is its world */

struct planted {
    void (*make)(struct scene *scene);
    void (*plant)(struct scene *scene);
    const char *name;
    const char *said; /* what the violation's detail begins with: the invariant, and more */
    int level;        /* the lowest audit that sees it; those below must not */
};

/*     PLANT(name, said, level, expression);     planted in `s`, which make_scene made
 *     PLANTED(name, said, level) { ... }        the same, of several statements
 *     PLANT_IN(make, ...), PLANTED_IN(make, ...)
 *                                               in what another function made
 */
#define PLANT(...)   PLANT_IN(make_scene, __VA_ARGS__)
#define PLANTED(...) PLANTED_IN(make_scene, __VA_ARGS__)

#define PLANT_IN(make, name, said, level, ...)                                                     \
    PLANTED_IN(make, name, said, level)                                                            \
    {                                                                                              \
        __VA_ARGS__;                                                                               \
    }                                                                                              \
    struct scene

#define PLANTED_IN(make, name, said, level)                                                        \
    static void name(struct scene *s);                                                             \
    __attribute__((constructor)) static void name##_is_there(void)                                 \
    {                                                                                              \
        add_planted(&(struct planted){make, name, #name, said, level});                            \
    }                                                                                              \
    static void name(struct scene *s)

void add_planted(const struct planted *fault);

/* Make the scene anew for each fault of the file, plant it, and audit at every level. */
void assert_planted(struct scene *scene);

#endif
