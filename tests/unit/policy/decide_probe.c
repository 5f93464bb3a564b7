/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Decisions about kept versions, for test_decide.py: each line of the input is one question, each of the output the
 * answer, the indices of those that are kept.
 *
 *     now keep least most COUNT step:span... COUNT from:until... COUNT pin...
 *
 * keep: -1 if it is not set.
 */
#include "policy/decide.h"

#include <glib.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static int64_t number(void)
{
    int64_t value;

    if (scanf("%" SCNd64, &value) != 1)
        exit(EXIT_FAILURE);
    return value;
}

static void pair(int64_t *a, int64_t *b)
{
    if (scanf("%" SCNd64 ":%" SCNd64, a, b) != 2)
        exit(EXIT_FAILURE);
}

static void answer(int64_t now)
{
    int64_t keep = number(), least = number(), most = number();
    struct wb_retention retention = {.least = (uint32_t)least, .most = (uint32_t)most, .keep = MAX(keep, 0)};
    g_autofree struct wb_shown *list = NULL;
    g_autofree int64_t *pins = NULL;
    g_autofree bool *stays = NULL;
    size_t count, pin_count;
    int64_t kept;

    retention.thin_count = (unsigned)number();
    g_assert_cmpuint(retention.thin_count, <=, WB_THIN_MAX);
    retention.aged = keep >= 0 || retention.thin_count;
    for (unsigned i = 0; i < retention.thin_count; i++)
        pair(&retention.thin[i].step, &retention.thin[i].span);
    count = (size_t)number();
    list = g_new(struct wb_shown, count);
    stays = g_new0(bool, count);
    for (size_t i = 0; i < count; i++)
        pair(&list[i].from, &list[i].until);
    pin_count = (size_t)number();
    pins = g_new(int64_t, pin_count);
    for (size_t i = 0; i < pin_count; i++)
        pins[i] = number();
    kept = wb_decide(&retention, list, count, pins, pin_count, now, stays);
    for (size_t i = 0; i < count; i++) {
        kept -= stays[i];
        if (stays[i])
            printf("%zu ", i);
    }
    g_assert_cmpint(kept, ==, 0);
    printf("\n");
    fflush(stdout);
}

int main(void)
{
    int64_t now;

    while (scanf("%" SCNd64, &now) == 1)
        answer(now);
    return 0;
}
