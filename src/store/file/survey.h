/* survey: the directories of file stores as operators see them, without a store. */
#ifndef KVPI_STORE_SURVEY_H
#define KVPI_STORE_SURVEY_H

#include <kvpager/store.h>

#include "store/file/disk.h"

/* As kvp_store_scan and kvp_store_clean, on any disk; root is the URL's path. */
kvp_status kvpi_survey_scan(const struct kvpi_disk *disk, const char *root,
                            const kvp_store_scan_options *options, char *out_why, size_t why_bytes);
kvp_status kvpi_survey_clean(const struct kvpi_disk *disk, const char *root,
                             const kvp_store_match *match, kvp_store_cleaned *out_cleaned,
                             char *out_why, size_t why_bytes);

#endif
