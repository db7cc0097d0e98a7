/* Keys of a config.json that this command does not count, or does not know. */
#ifndef KVPI_KEYS_H
#define KVPI_KEYS_H

#include "tool/models/config/entries.h"
#include "tool/models/config/widths.h"

/* Refuse what layers keep that is not counted, and keys that say that layers differ in what they
 * attend to and that are not known.
 *
 * Returns: 0; -1, a message
 */
int kvpi_keys_check(const kvpi_entries *reader, const kvpi_recurrent *recurrent);

/* Refuse keys that are not known and name heads, sizes of heads or kinds of layers, unless they say
 * what was counted. Others that may mean KV are listed in model->strange.
 *
 * Takes:   widths   all of them read
 * Returns: 0; -1, a message
 */
int kvpi_keys_check_strange(const kvpi_entries *reader, const kvpi_recurrent *recurrent,
                            const kvpi_widths *widths, kvpi_model *model);

#endif
