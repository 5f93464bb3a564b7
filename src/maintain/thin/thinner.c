/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "maintain/thin/thinner.h"

#include "store/tables/pins.h"
#include "store/tables/snapshots.h"
#include <errno.h>
#include <string.h>

static gint by_when(const void *a, const void *b)
{
    int64_t one = *(const int64_t *)a, other = *(const int64_t *)b;

    return one < other ? -1 : one > other;
}

int wb_thinner_pins(const struct wb_thinner *thinner, GArray *pins)
{
    struct wb_snapshots *all __attribute__((cleanup(wb_snapshots_unrefp))) = NULL;
    int r = wb_snapshots_get(thinner->store, &all);

    for (size_t i = 0; r == 0 && i < all->count; i++)
        g_array_append_val(pins, all->list[i].when);
    if (r == 0)
        r = wb_store_pinned(thinner->store, pins);
    g_array_sort(pins, by_when);
    return r;
}

int wb_thinner_rule(const struct wb_thinner *thinner, const char *path, GArray *rules)
{
    const struct wb_retention *rule = path ? thinner->options.rule(thinner->options.data, path) : NULL;

    if (!rule)
        return 1;
    for (guint i = 0; i < rules->len; i++)
        if (memcmp(&g_array_index(rules, struct wb_retention, i), rule, sizeof(*rule)) == 0)
            return 0;
    g_array_append_vals(rules, rule, 1);
    return 0;
}

int wb_thinner_decide(const struct wb_thinner *thinner, const GArray *rules, const struct wb_shown *shown, size_t count,
                      bool *stays)
{
    g_autoptr(GArray) pins = g_array_new(FALSE, FALSE, sizeof(int64_t));
    g_autofree bool *held = g_try_new(bool, count);
    int r = held ? wb_thinner_pins(thinner, pins) : -ENOMEM;

    for (guint i = 0; r == 0 && i < rules->len; i++) {
        const struct wb_retention *rule = &g_array_index(rules, struct wb_retention, i);
        int64_t kept = wb_decide(rule, shown, count, (const int64_t *)(const void *)pins->data, pins->len,
                                 thinner->now, held);

        r = (int)MIN(kept, 0);
        for (size_t k = 0; r == 0 && k < count; k++)
            stays[k] |= held[k] || shown[k].until < thinner->options.since;
    }
    return r;
}
