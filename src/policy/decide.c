/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "policy/decide.h"

#include <errno.h>
#include <stdlib.h>

/* A version that nothing holds but a landmark, or nothing at all. */
struct candidate {
    int64_t end; /* when its time is up */
    size_t index;
};

static int by_end(const void *a, const void *b)
{
    const struct candidate *one = a, *other = b;

    if (one->end != other->end)
        return one->end > other->end ? -1 : 1;
    return one->index > other->index ? -1 : one->index < other->index;
}

static int64_t add(int64_t instant, int64_t span)
{
    return instant > INT64_MAX - span ? INT64_MAX : instant + span;
}

/* Until when a landmark holds it: the last instant of a step that it shows at counts, since no earlier one
 * holds it longer. -1: none does. */
static int64_t landmark(const struct wb_retention *retention, const struct wb_shown *shown)
{
    int64_t end = -1;

    for (unsigned i = 0; i < retention->thin_count; i++) {
        int64_t step = retention->thin[i].step, last = shown->until / step * step - 1;

        if (last >= shown->from)
            end = MAX(end, add(last, retention->thin[i].span));
    }
    return end;
}

static bool is_young(const struct wb_retention *retention, const struct wb_shown *shown, int64_t now)
{
    return shown->until > now || now - shown->until < retention->keep;
}

/* Those that pins, age or number hold. The others whose time is not up go to `candidates`. */
static size_t hold(const struct wb_retention *retention, const struct wb_shown *list, size_t count,
                   const int64_t *pins, size_t pin_count, int64_t now, bool *stays, struct candidate *candidates)
{
    size_t least = MAX(retention->least, 1), found = 0, pin = 0;

    for (size_t i = 0; i < count; i++) {
        int64_t end = retention->aged ? landmark(retention, &list[i]) : WB_FOREVER;
        /* It is also shown in place of the dropped versions between it and the next. */
        int64_t next = i + 1 < count ? list[i + 1].from : list[i].until;

        while (pin < pin_count && pins[pin] < list[i].from)
            pin++;
        stays[i] = (pin < pin_count && pins[pin] < next) || count - i <= least ||
                   is_young(retention, &list[i], now);
        if (!stays[i] && end >= now)
            candidates[found++] = (struct candidate){end, i};
    }
    return found;
}

int64_t wb_decide(const struct wb_retention *retention, const struct wb_shown *list, size_t count,
                  const int64_t *pins, size_t pin_count, int64_t now, bool *stays)
{
    g_autofree struct candidate *candidates = g_try_new(struct candidate, count + 1);
    size_t found, least = MAX(retention->least, 1), most;
    int64_t kept = 0;

    if (!candidates)
        return -ENOMEM;
    found = hold(retention, list, count, pins, pin_count, now, stays, candidates);
    most = retention->most ? (retention->most > least ? retention->most - least : 0) : found;
    if (found > most)
        qsort(candidates, found, sizeof(*candidates), by_end);
    for (size_t i = 0; i < MIN(found, most); i++)
        stays[candidates[i].index] = true;
    for (size_t i = 0; i < count; i++)
        kept += stays[i];
    return kept;
}
