/* spread.c - gathers numbers from their owners, and distributes them. */
#include "train/spread.h"

#include <string.h>

/* The address of a number of a parameter that this rank keeps. */
static float *number_at(const dsmoe_trainer *t, trainer_row row, size_t index, int64_t number)
{
    if (row == ROW_WEIGHTS) return t->weights + t->parameters[index].begin + number;
    float *of = row == ROW_FIRST_MOMENT ? t->first_moment : t->second_moment;
    return of + shares_own(t, index, number);
}

/* Whether every rank has these numbers. */
static bool is_everywhere(const dsmoe_trainer *t, trainer_row row, size_t index)
{
    return !t->options.peers || (row == ROW_WEIGHTS && !shares_is_divided(t, index));
}

/* Which of the n numbers beginning with `first` a rank keeps. */
static share_range part_of(const dsmoe_trainer *t, size_t index, int rank, int64_t first, int64_t n)
{
    share_range r = shares_range(t, index, rank);
    if (r.first < first) r.first = first;
    if (r.end > first + n) r.end = first + n;
    return r.first < r.end ? r : (share_range){first, first};
}

static dsmoe_bytes bytes_of(void *numbers, share_range r)
{
    return (dsmoe_bytes){numbers, (size_t)(r.end - r.first) * sizeof(float)};
}

dsmoe_status spread_read(const dsmoe_trainer *t, trainer_row row, size_t index, int64_t first,
                         int64_t n, float *room, const float **numbers, dsmoe_error *error)
{
    const dsmoe_peers *p = t->options.peers;
    *numbers = room;
    if (is_everywhere(t, row, index)) {
        *numbers = number_at(t, row, index, first);
        return DSMOE_OK;
    }
    dsmoe_bytes *send = t->fold.lists, *receive = send + p->size;
    memset(send, 0, 2 * (size_t)p->size * sizeof *send);
    for (int r = 0; r < p->size; r++) {
        share_range part = part_of(t, index, r, first, n);
        if (part.first == part.end) continue;
        if (p->rank == 0 && r > 0) receive[r] = bytes_of(room + (part.first - first), part);
        if (p->rank != r) continue;
        dsmoe_bytes own = bytes_of(number_at(t, row, index, part.first), part);
        if (r == 0)
            memcpy(room + (part.first - first), own.bytes, own.size);
        else
            send[0] = own;
    }
    return peers_exchange(p, send, receive, error);
}

dsmoe_status spread_write(dsmoe_trainer *t, trainer_row row, size_t index, int64_t first, int64_t n,
                          const void *numbers, dsmoe_error *error)
{
    const dsmoe_peers *p = t->options.peers;
    const char *from = numbers; /* with any alignment */
    if (is_everywhere(t, row, index)) {
        float *to = number_at(t, row, index, first);
        if (peers_rank(p) == 0) memcpy(to, from, (size_t)n * sizeof *to);
        return peers_broadcast(p, 0, to, (size_t)n * sizeof *to, error);
    }
    dsmoe_bytes *send = t->fold.lists, *receive = send + p->size;
    memset(send, 0, 2 * (size_t)p->size * sizeof *send);
    for (int r = 0; r < p->size; r++) {
        share_range part = part_of(t, index, r, first, n);
        if (part.first == part.end) continue;
        const char *at = from ? from + (size_t)(part.first - first) * sizeof(float) : NULL;
        if (p->rank == 0 && r > 0) send[r] = bytes_of((void *)at, part);
        if (p->rank != r) continue;
        dsmoe_bytes own = bytes_of(number_at(t, row, index, part.first), part);
        if (r == 0)
            memcpy(own.bytes, at, own.size);
        else
            receive[0] = own;
    }
    return peers_exchange(p, send, receive, error);
}
