/* kvp_gauntlet: published defects of KV-cache managers, shown to be absent here.
 *
 *   kvp_gauntlet             every scene
 *   kvp_gauntlet V6 R1       these, by number or name
 *   kvp_gauntlet --list      names and sources only
 *   kvp_gauntlet --start-at N ...   the same with counters that start near N
 *   kvp_gauntlet --self-test planted defects: the scenes that are named for each must find it
 *
 * A line for each scene: its number, "ok" or "BAD", its name, and how many slots of the shadow
 * memory were compared; then what went wrong. Exit status: 0 nothing; 1 something; 2 wrong usage.
 */
#include "scenes.h"
#include "start.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const scene_list *const lists[] = {&nano_scenes,   &tvm_scenes,  &vllm_scenes,
                                          &engine_scenes, &peer_scenes, &hybrid_scenes,
                                          &late_scenes};

enum { LISTS = sizeof(lists) / sizeof(*lists) };

static bool is_named(const scene *one, char **names, int n_names)
{
    for (int i = 0; i < n_names; i++)
        if (strcmp(names[i], one->id) == 0 || strcmp(names[i], one->name) == 0)
            return true;
    return n_names == 0;
}

static rig *play_out(const scene *one, rig_plant planted)
{
    rig *r = random_allocate(1, sizeof(*r));
    r->planted = planted;
    one->play(r);
    rig_end(r);
    return r;
}

static bool play(const scene *one)
{
    rig *r = play_out(one, RIG_NOTHING);
    const bool is_bad = r->verdict.is_bad;
    printf("%-4s%-5s%-58s%8" PRIu64 " slots\n", one->id, is_bad ? "BAD" : "ok", one->name,
           r->n_slots);
    if (is_bad)
        printf("    %s\n", r->verdict.why);
    fflush(stdout);
    free(r);
    return !is_bad;
}

static const scene *find(const char *id)
{
    for (uint32_t i = 0; i < LISTS; i++) {
        for (uint32_t k = 0; k < lists[i]->n_scenes; k++)
            if (strcmp(lists[i]->scenes[k].id, id) == 0)
                return &lists[i]->scenes[k];
    }
    return NULL;
}

static int self_test(void)
{
    enum { FINDERS = 6 };
    static const struct {
        rig_plant planted;
        const char *name;
        const char *finders[FINDERS];
    } defects[] = {
        {RIG_SHORT_COPY, "short-copy", {"T1", "V2", "V14", "M1", "R1", "D1"}},
        {RIG_SKIPPED_COPY, "skipped-copy", {"T1", "V2", "V14", "M1", "R1", "S3"}},
        {RIG_SKIPPED_MOVE, "skipped-move", {"T2", "T3", "T4", "T5"}},
        {RIG_WRONG_SLOT, "wrong-slot", {"N5", "T13", "V3", "S4", "V6", "R2"}},
        {RIG_EARLY_REUSE, "early-reuse", {"N1", "N5", "V3", "V12", "H1", "M2"}},
        {RIG_EARLY_DONE, "early-done", {"V6", "R1", "T12", "S3"}},
    };
    uint32_t n_missed = 0;
    for (uint32_t i = 0; i < sizeof(defects) / sizeof(*defects); i++) {
        for (uint32_t k = 0; k < FINDERS && defects[i].finders[k] != NULL; k++) {
            rig *r = play_out(find(defects[i].finders[k]), defects[i].planted);
            n_missed += !r->verdict.is_bad;
            printf("%-14s%-4s%s\n", defects[i].name, defects[i].finders[k],
                   r->verdict.is_bad ? "found" : "MISSED");
            free(r);
        }
    }
    return n_missed > 0;
}

int main(int argc, char **argv)
{
    const bool lists_only = argc == 2 && strcmp(argv[1], "--list") == 0;
    uint32_t n_played = 0, n_bad = 0;
    if (argc == 2 && strcmp(argv[1], "--self-test") == 0)
        return self_test();
    if (argc > 2 && strcmp(argv[1], "--start-at") == 0) {
        if (!start_at(strtoull(argv[2], NULL, 0))) {
            fprintf(stderr, "kvp_gauntlet: --start-at needs a library with checks\n");
            return 2;
        }
        argv += 2;
        argc -= 2;
    }
    for (uint32_t i = 0; i < LISTS; i++) {
        for (uint32_t k = 0; k < lists[i]->n_scenes; k++) {
            const scene *one = &lists[i]->scenes[k];
            if (lists_only) {
                printf("%-4s%-58s%s\n", one->id, one->name, one->source);
            } else if (is_named(one, argv + 1, argc - 1)) {
                n_played++;
                n_bad += !play(one);
            }
        }
    }
    if (!lists_only && n_played == 0) {
        fprintf(stderr, "usage: kvp_gauntlet [--list | --self-test | "
                        "[--start-at N] [NUMBER-OR-NAME ...]]\n");
        return 2;
    }
    if (!lists_only)
        printf("%" PRIu32 " scenes, %" PRIu32 " bad\n", n_played, n_bad);
    return n_bad > 0;
}
