/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "policy/policy.h"

#include "wayback/when.h"
#include <inttypes.h>

static void free_rule(gpointer data)
{
    struct wb_policy_rule *rule = data;

    wb_patterns_free(rule->patterns);
    g_free(rule->title);
    g_free(rule);
}

void wb_policy_init(struct wb_policy *policy)
{
    *policy = (struct wb_policy){0};
}

void wb_policy_deinit(struct wb_policy *policy)
{
    g_clear_pointer(&policy->rules, g_ptr_array_unref);
}

struct wb_policy_rule *wb_policy_add(struct wb_policy *policy, const char *title, unsigned line)
{
    struct wb_policy_rule *rule = g_new0(struct wb_policy_rule, 1);

    rule->title = g_strdup(title);
    rule->line = line;
    rule->patterns = wb_patterns_new();
    if (!policy->rules)
        policy->rules = g_ptr_array_new_with_free_func(free_rule);
    g_ptr_array_add(policy->rules, rule);
    return rule;
}

const struct wb_policy_rule *wb_policy_find(const struct wb_policy *policy, const char *path, bool is_directory)
{
    for (guint i = policy->rules ? policy->rules->len : 0; i-- > 0;) {
        const struct wb_policy_rule *rule = g_ptr_array_index(policy->rules, i);

        if (wb_patterns_match(rule->patterns, path, is_directory))
            return rule;
    }
    return &policy->everything;
}

/* `unsaid`: for a rule that has no age. */
static int64_t reach_of(const struct wb_retention *retention, int64_t unsaid)
{
    int64_t thin = retention->thin_count ? retention->thin[retention->thin_count - 1].span : 0;

    /* A number of versions has no age: those of a file that seldom changes may be old. */
    if (retention->least > 1)
        return WB_FOREVER;
    return retention->aged ? MAX(retention->keep, thin) : unsaid;
}

static int64_t longest(const struct wb_policy *policy, int64_t unsaid)
{
    int64_t reach = reach_of(&policy->everything.retention, unsaid);

    for (guint i = 0; policy->rules && i < policy->rules->len; i++) {
        const struct wb_policy_rule *rule = g_ptr_array_index(policy->rules, i);

        reach = MAX(reach, reach_of(&rule->retention, unsaid));
    }
    return reach;
}

int64_t wb_policy_reach(const struct wb_policy *policy)
{
    return longest(policy, WB_FOREVER);
}

int64_t wb_policy_hold(const struct wb_policy *policy)
{
    return longest(policy, 0);
}

static int64_t shortest(const struct wb_policy *policy, int64_t unsaid)
{
    int64_t reach = reach_of(&policy->everything.retention, unsaid);

    for (guint i = 0; policy->rules && i < policy->rules->len; i++)
        reach = MIN(reach, reach_of(&((const struct wb_policy_rule *)policy->rules->pdata[i])->retention, unsaid));
    return reach;
}

int64_t wb_policy_shortest_reach(const struct wb_policy *policy)
{
    return shortest(policy, WB_FOREVER);
}

int64_t wb_policy_shortest_hold(const struct wb_policy *policy)
{
    return shortest(policy, 0);
}

int64_t wb_retention_reach(const struct wb_retention *retention)
{
    return reach_of(retention, WB_FOREVER);
}

int64_t wb_retention_hold(const struct wb_retention *retention)
{
    return reach_of(retention, 0);
}

static int64_t least_of(const struct wb_retention *retention)
{
    if (!retention->aged)
        return WB_FOREVER;
    return retention->thin_count && !retention->keep ? retention->thin[0].step : retention->keep;
}

int64_t wb_policy_least(const struct wb_policy *policy)
{
    int64_t least = least_of(&policy->everything.retention);

    for (guint i = 0; policy->rules && i < policy->rules->len; i++)
        least = MIN(least, least_of(&((struct wb_policy_rule *)g_ptr_array_index(policy->rules, i))->retention));
    return least;
}

bool wb_policy_has_room(const struct wb_policy *policy)
{
    return policy->max_size.bytes || policy->max_size.percent || policy->reserve.bytes || policy->reserve.percent;
}

bool wb_policy_says_something(const struct wb_policy *policy)
{
    return policy->rules || policy->everything.retention.aged || policy->everything.retention.least ||
           policy->everything.retention.most || wb_policy_has_room(policy) || policy->user_max.bytes ||
           policy->user_max.percent;
}

/* ---- in words -------------------------------------------------------------------------------- */

static char *print_span(int64_t span, bool years)
{
    static const struct {
        int64_t seconds;
        char letter;
    } units[] = {{365 * 86400, 'y'}, {86400, 'd'}, {3600, 'h'}, {60, 'm'}, {1, 's'}};
    g_autoptr(GString) text = g_string_new(NULL);
    int64_t seconds = span / WB_WHEN_SECOND;

    if (span == WB_FOREVER)
        return g_strdup("forever");
    for (size_t i = 0; i < G_N_ELEMENTS(units); i++) {
        /* Years only where nothing else is left over: they stand alone in the file. */
        if (seconds < units[i].seconds || (i == 0 && (!years || seconds % units[i].seconds != 0)))
            continue;
        g_string_append_printf(text, "%" PRId64 "%c", seconds / units[i].seconds, units[i].letter);
        seconds %= units[i].seconds;
    }
    return g_string_free(g_steal_pointer(&text), FALSE);
}

char *wb_span_print(int64_t span)
{
    return print_span(span, true);
}

char *wb_span_print_age(int64_t span)
{
    return print_span(span, false);
}

char *wb_retention_print(const struct wb_retention *retention)
{
    g_autoptr(GString) text = g_string_new(NULL);

    if (retention->keep) {
        g_autofree char *span = wb_span_print(retention->keep);

        g_string_append_printf(text, "keep %s", span);
    }
    for (unsigned i = 0; i < retention->thin_count; i++) {
        g_autofree char *step = wb_span_print(retention->thin[i].step);
        g_autofree char *span = wb_span_print(retention->thin[i].span);

        g_string_append_printf(text, "%sone per %s for %s", text->len ? ", " : "", step, span);
    }
    if (retention->least)
        g_string_append_printf(text, "%sat least the newest %" PRIu32, text->len ? ", " : "", retention->least);
    if (retention->most)
        g_string_append_printf(text, "%sat most %" PRIu32, text->len ? ", " : "", retention->most);
    if (text->len == 0)
        g_string_append(text, "keep all");
    return g_string_free(g_steal_pointer(&text), FALSE);
}

char *wb_room_print(const struct wb_room *room)
{
    static const char units[] = "KMGTPE";
    uint64_t value = room->bytes;
    const char *hard = room->hard ? " hard" : "";
    int unit = -1;

    if (room->percent)
        return g_strdup_printf("%u%%%s", room->percent, hard);
    while (value && value % 1024 == 0 && unit + 1 < (int)sizeof(units) - 1) {
        value /= 1024;
        unit++;
    }
    if (unit < 0)
        return g_strdup_printf("%" PRIu64 "%s", value, hard);
    return g_strdup_printf("%" PRIu64 "%c%s", value, units[unit], hard);
}
