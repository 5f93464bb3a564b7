/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the history may take, by what wayback.conf says; and when it will, at the rate of now. */
#include "vdf.h"
#include "client/control.h"
#include "common/snapshots.h"
#include "common/text.h"
#include "wayback/when.h"
#include <inttypes.h>
#include <string.h>

#define DAYS_MAX 36500

void budget_read(int dir_fd, struct usage *usage)
{
    g_autofree struct wb_control *request = g_new(struct wb_control, 1);
    int r = wb_request_prepare(request, WB_CONTROL_BUDGET, "");

    if (r == 0)
        r = wb_request_call(dir_fd, request);
    usage->has_budget = r == 0 && !(request->flags & WB_CONTROL_BUDGET_OWN);
    if (r < 0)
        return;
    memcpy(&usage->budget, request->data, sizeof(usage->budget));
    usage->user_max_size = usage->budget.user_max_size;
    usage->user_count = usage->user_max_size > 0 ? request->count : 0;
    memcpy(usage->users, request->data + sizeof(usage->budget), usage->user_count * sizeof(usage->users[0]));
    if (!usage->has_budget)
        return;
    if (wb_request_snapshot_list(dir_fd, "", NULL, &usage->snapshots) < 0)
        usage->snapshots = NULL;
}

const struct wb_control_snapshot *budget_holder(const struct usage *usage)
{
    const GPtrArray *all = usage->snapshots;

    return all && all->len > 0 && usage->budget.keep != INT64_MAX ? all->pdata[0] : NULL;
}

/* Days until the history has grown by that much; -1: unknown. */
static int64_t days_until(uint64_t bytes, uint64_t rate)
{
    return rate > 0 && bytes / rate < DAYS_MAX ? (int64_t)(bytes / rate) : -1;
}

void budget_foresee(const struct usage *usage, const struct outlook *outlook, struct budget_outlook *ret)
{
    const struct wb_control_budget *budget = &usage->budget;
    uint64_t used = outlook->all.disk, free = usage->sums.free, left = UINT64_MAX;

    *ret = (struct budget_outlook){.days = -1};
    if (budget->max_size > 0) {
        left = budget->max_size > used ? budget->max_size - used : 0;
        ret->percent = (unsigned)MIN((double)used * 100 / (double)budget->max_size, 9999);
    }
    if (budget->reserve > 0)
        left = MIN(left, free > budget->reserve ? free - budget->reserve : 0);
    if (left != UINT64_MAX)
        ret->days = days_until(left, outlook->rate);
}

static const char *size_text(const struct show_usage *show, uint64_t bytes, char text[WB_TEXT_SIZE_MAX])
{
    if (!show->bytes)
        return wb_text_size(bytes, text);
    g_snprintf(text, WB_TEXT_SIZE_MAX, "%" PRIu64, bytes);
    return text;
}

static void show_holder(FILE *out, const struct wb_control_snapshot *holder)
{
    g_autofree char *name = wb_text_printable(wb_snapshot_name(holder));
    char when[WB_WHEN_TEXT_MAX];

    fprintf(out, "The oldest snapshot, %s of %s, protects all history since then ('vsnap delete' removes it)\n", name,
            wb_when_print(holder->when, 0, when));
}

static void show_keep(FILE *out, const struct wb_control_budget *budget, bool limited)
{
    char age[WB_TEXT_AGE_MAX];

    if (budget->keep == INT64_MAX)
        fprintf(out, "All history is kept (wayback.conf)\n");
    else if (budget->keep > 0)
        fprintf(out, "Versions replaced less than %s ago are kept; older ones are deleted%s (wayback.conf)\n",
                wb_text_age(budget->keep, age), limited ? " when space runs low" : "");
}

void show_users(FILE *out, const struct usage *usage, const struct show_usage *show)
{
    char size[WB_TEXT_SIZE_MAX];

    if (usage->user_max_size == 0)
        return;
    fprintf(out, "Users: at most %s of history for the changes of each (user-max-size)\n",
            size_text(show, usage->user_max_size, size));
    for (unsigned i = 0; i < usage->user_count; i++) {
        const struct wb_control_user *user = &usage->users[i];
        double percent = (double)user->bytes * 100 / (double)usage->user_max_size;

        fprintf(out, "  %s: %s, %u %%%s\n", wb_text_user(user->uid), size_text(show, user->bytes, size),
                (unsigned)MIN(percent, 9999),
                user->flags & WB_CONTROL_USER_STUCK ? "; all of it is protected; changes fail at the limit" : "");
    }
}

void show_budget(FILE *out, const struct usage *usage, const struct show_usage *show, const struct outlook *outlook)
{
    const struct wb_control_budget *budget = &usage->budget;
    char size[WB_TEXT_SIZE_MAX];
    struct budget_outlook when;

    if (!usage->has_budget)
        return;
    budget_foresee(usage, outlook, &when);
    if (budget->max_size > 0)
        fprintf(out, "Budget: %s (max-size), %u %% used\n", size_text(show, budget->max_size, size),
                when.percent);
    if (budget->reserve > 0)
        fprintf(out, "Reserve: %s are kept free on the file system of the store\n",
                size_text(show, budget->reserve, size));
    if (when.days >= 0)
        fprintf(out, "At the present rate the limit is reached in about %" PRId64 " days\n", when.days);
    show_keep(out, budget, budget->max_size > 0 || budget->reserve > 0);
    if (budget_holder(usage))
        show_holder(out, budget_holder(usage));
}
