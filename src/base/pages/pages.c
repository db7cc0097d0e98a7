/* pages: which kind of pages a mapping gets, and what is refused.
 *
 * Reserved huge pages are taken whole when they are mapped, so a mapping that succeeds can be
 * touched. That does not hold for pages of one node, which are found only when they are touched:
 * then they are touched here, where it can still be said that there are none.
 */
#include "base/pages/pages.h"

#include "base/pages/pages_system.h"

#define SMALL_PAGE ((size_t)4096)
#define HUGE_PAGE  ((size_t)2 << 20)

/* Memory with the wanted kind of pages; not touched yet. */
static void *map_pages(size_t bytes, const kvp_memory_options *options, uint32_t *out_pages)
{
    const int may_reserve = options->pages == KVP_PAGES_HUGE ||
                            (options->pages == KVP_PAGES_AUTO && options->numa_node < 0);
    if (may_reserve) {
        void *mapping = kvpi_pages_map_reserved(bytes);
        if (mapping || options->pages == KVP_PAGES_HUGE) {
            *out_pages = KVP_PAGES_HUGE;
            return mapping;
        }
    }
    const int wants_huge = options->pages != KVP_PAGES_SMALL;
    void *mapping =
        wants_huge ? kvpi_pages_map_aligned(bytes, HUGE_PAGE) : kvpi_pages_map_small(bytes);
    if (mapping) {
        const int is_huge = wants_huge && kvpi_pages_ask_for_huge(mapping, bytes) == 0;
        *out_pages = is_huge ? KVP_PAGES_TRANSPARENT : KVP_PAGES_SMALL;
    }
    return mapping;
}

kvp_status kvpi_pages_map(size_t bytes, const kvp_memory_options *options, void **out_mapping,
                          kvp_memory_info *out_info)
{
    const size_t page = options->pages == KVP_PAGES_SMALL ? SMALL_PAGE : HUGE_PAGE;
    uint32_t pages = KVP_PAGES_SMALL;
    if (bytes > SIZE_MAX - page) {
        return KVP_E_NO_MEMORY;
    }
    bytes = (bytes + page - 1) / page * page;
    void *mapping = map_pages(bytes, options, &pages);
    if (!mapping) {
        return KVP_E_NO_MEMORY;
    }
    const int is_bound = options->numa_node >= 0;
    const int must_touch = options->touch || (is_bound && pages == KVP_PAGES_HUGE);
    if ((is_bound && kvpi_pages_bind(mapping, bytes, options->numa_node) != 0) ||
        (must_touch && kvpi_pages_populate(mapping, bytes) != 0)) {
        kvpi_pages_unmap(mapping, bytes);
        return KVP_E_NO_MEMORY;
    }
    *out_mapping = mapping;
    *out_info = (kvp_memory_info){bytes, pages, options->numa_node};
    return KVP_OK;
}
