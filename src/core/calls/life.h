/* life: is an arena one of ours? */
#ifndef KVPI_CALLS_LIFE_H
#define KVPI_CALLS_LIFE_H

#include "core/cache/state.h"

/* What of this build decides how an arena lies: its version, and the sizes of what lies there. */
uint64_t kvpi_arena_layout(void);

/* The bytes of KVP_ARENA_MARK. */
uint64_t kvpi_arena_mark(void);

/* Has it the sizes and offsets that its configuration gives, and is that one valid? Afterwards
 * these can be trusted, wherever the bytes come from; nothing else can. */
int kvpi_is_planned(const kvp_cache *cache);

#endif
