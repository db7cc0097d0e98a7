/* kvpager/sized/transfer.h: calls of transfer.h that give or fill structs which may
 * grow. The functions that programs call pass the size that they know to the exported ones.
 * docs/ABI.md says why; transfer.h says what each call does, and includes this. */
#ifndef KVPAGER_SIZED_TRANSFER_H
#define KVPAGER_SIZED_TRANSFER_H

KVP_API kvp_status kvp_loopback_create_sized(size_t max_message, uint32_t n_messages,
                                             kvp_loopback **out_loopback, kvp_link *out_ends,
                                             size_t link_size);
KVP_SIZED kvp_status kvp_loopback_create(size_t max_message, uint32_t n_messages,
                                         kvp_loopback **out_loopback, kvp_link *out_ends)
{
    return kvp_loopback_create_sized(max_message, n_messages, out_loopback, out_ends,
                                     sizeof *out_ends);
}

KVP_API kvp_status kvp_shm_connect_sized(kvp_shm *shm, kvp_link *out_end, size_t end_size,
                                         kvp_why *out_why);
KVP_SIZED kvp_status kvp_shm_connect(kvp_shm *shm, kvp_link *out_end, kvp_why *out_why)
{
    return kvp_shm_connect_sized(shm, out_end, sizeof *out_end, out_why);
}

KVP_API void kvp_transfer_config_init_sized(kvp_transfer_config *config, size_t config_size);
KVP_SIZED void kvp_transfer_config_init(kvp_transfer_config *config)
{
    kvp_transfer_config_init_sized(config, sizeof *config);
}

KVP_API kvp_status kvp_ticket_read_sized(const void *bytes, size_t n_bytes, kvp_ticket *out_ticket,
                                         size_t ticket_size, kvp_slot_run *out_runs,
                                         uint32_t capacity);
KVP_SIZED kvp_status kvp_ticket_read(const void *bytes, size_t n_bytes, kvp_ticket *out_ticket,
                                     kvp_slot_run *out_runs, uint32_t capacity)
{
    return kvp_ticket_read_sized(bytes, n_bytes, out_ticket, sizeof *out_ticket, out_runs,
                                 capacity);
}

KVP_API kvp_status kvp_ticket_group_sized(const void *bytes, size_t n_bytes, uint32_t of_group,
                                          kvp_ticket *out_ticket, size_t ticket_size,
                                          kvp_slot_run *out_runs, uint32_t capacity);
KVP_SIZED kvp_status kvp_ticket_group(const void *bytes, size_t n_bytes, uint32_t of_group,
                                      kvp_ticket *out_ticket, kvp_slot_run *out_runs,
                                      uint32_t capacity)
{
    return kvp_ticket_group_sized(bytes, n_bytes, of_group, out_ticket, sizeof *out_ticket,
                                  out_runs, capacity);
}

KVP_API kvp_status kvp_receiver_info_sized(const kvp_receiver *receiver, uint64_t id,
                                           kvp_transfer_info *out_info, size_t info_size);
KVP_SIZED kvp_status kvp_receiver_info(const kvp_receiver *receiver, uint64_t id,
                                       kvp_transfer_info *out_info)
{
    return kvp_receiver_info_sized(receiver, id, out_info, sizeof *out_info);
}

KVP_API kvp_status kvp_receiver_stats_get_sized(const kvp_receiver *receiver,
                                                kvp_receiver_stats *out_stats, size_t stats_size);
KVP_SIZED kvp_status kvp_receiver_stats_get(const kvp_receiver *receiver,
                                            kvp_receiver_stats *out_stats)
{
    return kvp_receiver_stats_get_sized(receiver, out_stats, sizeof *out_stats);
}

KVP_API kvp_status kvp_sender_info_sized(const kvp_sender *sender, uint64_t id,
                                         kvp_transfer_info *out_info, size_t info_size);
KVP_SIZED kvp_status kvp_sender_info(const kvp_sender *sender, uint64_t id,
                                     kvp_transfer_info *out_info)
{
    return kvp_sender_info_sized(sender, id, out_info, sizeof *out_info);
}

#endif
