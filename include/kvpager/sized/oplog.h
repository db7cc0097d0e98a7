/* kvpager/sized/oplog.h: calls of oplog.h that give or fill structs which may
 * grow. The functions that programs call pass the size that they know to the exported ones.
 * docs/ABI.md says why; oplog.h says what each call does, and includes this. */
#ifndef KVPAGER_SIZED_OPLOG_H
#define KVPAGER_SIZED_OPLOG_H

KVP_API kvp_status kvp_oplog_config_sized(const kvp_oplog *log, kvp_config *out_config,
                                          size_t config_size);
KVP_SIZED kvp_status kvp_oplog_config(const kvp_oplog *log, kvp_config *out_config)
{
    return kvp_oplog_config_sized(log, out_config, sizeof *out_config);
}

#endif
