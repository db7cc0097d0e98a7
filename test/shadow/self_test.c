/* See self_test.h. */
#include "drive.h"
#include "self_test.h"

#include <inttypes.h>
#include <stdio.h>

enum { SELF_TEST_CONFIGS = 40, SELF_TEST_OPS = 1500 };

/* The first configuration in which the defect is found; SELF_TEST_CONFIGS: none. */
static uint64_t find_defect(plant what, drive_engine engine, verdict *v)
{
    coverage seen = {.n_planted = 0};
    drive_options options = {.engine = engine, .seed = 1, .ops = SELF_TEST_OPS, .planted = what};
    for (; options.index < SELF_TEST_CONFIGS; options.index++) {
        *v = (verdict){0};
        if (!drive_run(&options, v, &seen)) {
            if (seen.n_planted == 0) {
                verdict_bad(v, "found before anything was planted");
                return SELF_TEST_CONFIGS;
            }
            break;
        }
    }
    return options.index;
}

int self_test_run(void)
{
    static const struct {
        plant what;
        drive_engine engine;
    } defects[] = {
        {PLANT_SKIPPED_COPY, DRIVE_SCHED},    {PLANT_FORGOTTEN_STEP, DRIVE_SCHED},
        {PLANT_SKIPPED_COPY, DRIVE_ORDERED},  {PLANT_SKIPPED_COPY, DRIVE_OVERLAPPED},
        {PLANT_EARLY_COPY, DRIVE_ORDERED},    {PLANT_EARLY_COPY, DRIVE_OVERLAPPED},
        {PLANT_SHORT_COPY, DRIVE_ORDERED},    {PLANT_WRONG_SLOT, DRIVE_ORDERED},
        {PLANT_OTHER_SPACE, DRIVE_ORDERED},   {PLANT_NO_PARKING, DRIVE_OVERLAPPED},
        {PLANT_EARLY_DONE, DRIVE_OVERLAPPED}, {PLANT_FORGOTTEN_STEP, DRIVE_OVERLAPPED},
        {PLANT_OTHER_GROUP, DRIVE_ORDERED},   {PLANT_OTHER_GROUP, DRIVE_OVERLAPPED},
        {PLANT_COPY_GROUP, DRIVE_ORDERED},    {PLANT_EARLY_DROP, DRIVE_ORDERED},
        {PLANT_EARLY_DROP, DRIVE_OVERLAPPED}, {PLANT_OWN_WINDOW, DRIVE_ORDERED},
        {PLANT_OWN_WINDOW, DRIVE_OVERLAPPED}, {PLANT_UNPARKED_DROP, DRIVE_OVERLAPPED},
        {PLANT_SKIPPED_MOVE, DRIVE_ORDERED},  {PLANT_SKIPPED_MOVE, DRIVE_OVERLAPPED},
        {PLANT_EARLY_LOAD, DRIVE_ORDERED},    {PLANT_EARLY_LOAD, DRIVE_OVERLAPPED},
        {PLANT_TORN_LOAD, DRIVE_ORDERED},     {PLANT_TORN_LOAD, DRIVE_OVERLAPPED},
    };
    uint32_t n_missed = 0;
    for (size_t i = 0; i < sizeof(defects) / sizeof(*defects); i++) {
        verdict v;
        const uint64_t index = find_defect(defects[i].what, defects[i].engine, &v);
        printf("%s: ", plant_name(defects[i].what));
        if (index < SELF_TEST_CONFIGS) {
            printf("configuration %" PRIu64 ": %s\n", index, v.why);
        } else {
            printf("not found\n");
            n_missed++;
        }
    }
    return n_missed == 0 ? 0 : 1;
}
