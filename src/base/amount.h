/* amount: bytes as people write them, for options, store URLs and the server. Rooms include it that
 * share nothing else, hence all of it is here. */
#ifndef KVPI_AMOUNT_H
#define KVPI_AMOUNT_H

#include <stdint.h>
#include <string.h>

enum {
    KVPI_AMOUNT_OK = 0,
    KVPI_AMOUNT_WRONG = -1,
    KVPI_AMOUNT_BARE = 1 /* a small number without a unit: surely a mistake */
};

/* The bytes of a unit; 0 for one that does not exist. */
static inline uint64_t kvpi_amount_unit(const char *unit)
{
    static const char letters[] = "kmgt";
    if (*unit == '\0' || strcmp(unit, "B") == 0)
        return 1;
    const char *found = strchr(letters, *unit | 0x20);
    const int is_decimal = strcmp(unit + 1, "B") == 0;
    if (found == NULL || (!is_decimal && unit[1] != '\0' && strcmp(unit + 1, "i") != 0 &&
                          strcmp(unit + 1, "iB") != 0))
        return 0;
    uint64_t bytes = 1;
    for (const char *at = letters; at <= found; at++)
        bytes *= is_decimal ? 1000 : 1024;
    return bytes;
}

/* Read "40GiB", "80G", "1.5T", "131072", "512kB", "80B". K, M, G and T, alone or as in KiB, are
 * powers of 1024; kB, MB, GB and TB of 1000. Before a unit there may be three decimals; what they
 * make is rounded down to whole bytes. At most 16 PiB.
 *
 * Takes:   bare_least   what a number without a unit must have; KVPI_AMOUNT_BARE gives less of it
 * Gives:   out          above 0; not for KVPI_AMOUNT_WRONG
 */
static inline int kvpi_amount_read(const char *text, uint64_t bare_least, uint64_t *out)
{
    uint64_t milli = 0, weight = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9' && milli <= UINT64_MAX / 20; at++)
        milli = milli * 10 + (uint64_t)(*at - '0') * 1000;
    if (at == text)
        return KVPI_AMOUNT_WRONG;
    if (*at == '.')
        for (at++, weight = 100; *at >= '0' && *at <= '9' && weight > 0; at++, weight /= 10)
            milli += (uint64_t)(*at - '0') * weight;
    const uint64_t unit = weight == 100 ? 0 : kvpi_amount_unit(at);
    if (unit == 0 || milli > UINT64_MAX / unit || (unit == 1 && milli % 1000 != 0) ||
        milli * unit / 1000 == 0)
        return KVPI_AMOUNT_WRONG;
    *out = milli * unit / 1000;
    return *at == '\0' && *out < bare_least ? KVPI_AMOUNT_BARE : KVPI_AMOUNT_OK;
}

#endif
