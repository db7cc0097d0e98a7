/* gauntlet: defects that were shipped elsewhere, each as a scene that is played here.
 *
 * A scene drives the library into the situation in which another system went wrong, and says what
 * must be there instead: contents, slot by slot, on the shadow memory (rig.h); counts; refusals. It
 * ends with an audit of the whole cache. README.md has the table.
 */
#ifndef KVP_TEST_GAUNTLET_H
#define KVP_TEST_GAUNTLET_H

#include "rig.h"

typedef struct scene {
    const char *id;     /* as in README.md */
    const char *name;   /* what is right here */
    const char *source; /* where the defect was shipped */
    void (*play)(rig *r);
} scene;

typedef struct scene_list {
    const scene *scenes;
    uint32_t n_scenes;
} scene_list;

#define SCENES(array)                                                                              \
    {                                                                                              \
        array, sizeof(array) / sizeof(*(array))                                                    \
    }
#endif
