/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "common/cli.h"
#include "client/watch.h"
#include "common/json.h"
#include "common/pager.h"
#include "common/progress.h"
#include "client/path.h"
#include "common/text.h"
#include <errno.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define LEVELS_MAX (64 * 1024)
#define STACK_MAX (100 * 1024 * 1024)

static const struct wb_cli *the_cli;
static const char *called;     /* "vlog", or "wayback log" */
static const char *whole_name; /* with its verb */
static char *store_option;
static bool failed;
static char *stopped; /* what was done so far; NULL: the tool does not say */
static volatile sig_atomic_t interrupted;
static void (*volatile last_words_function)(void);

static void on_signal(int number)
{
    if (!interrupted) {
        interrupted = number;
        return;
    }
    if (last_words_function)
        last_words_function();
    _exit(128 + number);
}

static void prepare_process(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = on_signal};
    struct rlimit limit;

    setlocale(LC_ALL, "");
    /* A closed pipe is met as EPIPE, so that a private mount is still taken down. */
    signal(SIGPIPE, SIG_IGN);
    for (unsigned i = 0; i < G_N_ELEMENTS(numbers); i++) {
        struct sigaction old;

        /* nohup(1) and shells' background jobs ignore signals on purpose. */
        if (sigaction(numbers[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaction(numbers[i], &action, NULL);
    }
    /*
     * Walks keep one or two descriptors a level, and less than 1 KiB of stack. So a tree that is too deep, or has no
     * end, is met as EMFILE and not as the end of the stack, for which the kernel keeps 128 MiB free.
     */
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = MIN(limit.rlim_max, LEVELS_MAX);
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    if (getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur < STACK_MAX) {
        limit.rlim_cur = MIN(limit.rlim_max, STACK_MAX);
        setrlimit(RLIMIT_STACK, &limit);
    }
}

/* A tool that is executed as a verb of `wayback` is called "wayback log". */
static const char *name_of_call(const struct wb_cli *cli, const char *argument)
{
    return argument && g_str_has_prefix(argument, "wayback ") ? g_strdup(argument) : cli->name;
}

/* As in the table of verbs of the program `wayback`. */
static const struct {
    const char *tool, *call;
} calls[] = {{"vbrowse", "wayback browse"},  {"vcompact", "wayback pack"},    {"vconfig", "wayback config"},
             {"vdf", "wayback usage"},
             {"vdiff", "wayback diff"},      {"vdisable", "wayback disable"},  {"vdump", "wayback dump"},
             {"venable", "wayback enable"},  {"vextract", "wayback extract"},  {"vfind", "wayback find"},
             {"vfsck", "wayback check"},     {"vlog", "wayback log"},          {"vprune", "wayback forget"},
             {"vreceive", "wayback receive"}, {"vrevert", "wayback restore"},  {"vrm", "wayback rm"},
             {"vsend", "wayback send"},      {"vsnap", "wayback snap"},        {"vstat", "wayback list"},
             {"vstatus", "wayback status"},  {"vstore", "wayback store"},      {"vundo", "wayback undo"},
             {"vundo --redo", "wayback redo"}, {"vweb", "wayback web"}};

const char *wb_cli_tool(const char *tool)
{
    for (size_t i = 0; g_str_has_prefix(wb_cli_name(), "wayback ") && i < G_N_ELEMENTS(calls); i++)
        if (strcmp(calls[i].tool, tool) == 0)
            return calls[i].call;
    return tool;
}

/* `text` with the name by which each tool is called where it stands at the beginning of a line. */
static char *with_call(const struct wb_cli *cli, const char *text)
{
    GString *result = g_string_new(text);

    for (size_t i = 0; called != cli->name && i < G_N_ELEMENTS(calls); i++) {
        bool is_own = strcmp(calls[i].tool, cli->name) == 0;
        g_autofree char *own = g_strdup_printf("  %s ", calls[i].tool);
        g_autofree char *new = g_strdup_printf("  %s ", is_own ? called : calls[i].call);

        g_string_replace(result, own, new, 0);
    }
    return g_string_free(result, FALSE);
}

static char *describe(const struct wb_cli *cli)
{
    g_autofree char *examples = with_call(cli, cli->examples);
    static const char times[] = "TIME, everywhere: 14:03, \"this morning\", yesterday, 2026-11-20T09:30, 2h30m,\n"
                                "\"5 minutes ago\", begin (of the history), seconds since the epoch, a name of a\n"
                                "snapshot, ~N (before the N-th most recent version).\n\n";

    return g_strdup_printf("Examples:\n%s\n"
                           "%s"
                           "Exit status: %s.\n"
                           "Full documentation: man %s",
                           examples, cli->timeless ? "" : times,
                           cli->exit_text ? cli->exit_text
                                          : "0 done, 1 something failed, 2 wrong usage, 130 stopped by Ctrl-C",
                           cli->name);
}

/* What is wrong with the PATHs, as an exit status; -1: nothing. */
static int check_paths(const struct wb_cli *cli, char **paths, int count)
{
    const char *word = cli->path_word ? cli->path_word : "PATH";

    if (count < cli->paths_min)
        return wb_cli_usage("%s is missing", word);
    if (cli->paths_max > 0 && count > cli->paths_max)
        return wb_cli_usage("only one %s is allowed ('%s' is extra)", word, paths[cli->paths_max]);
    for (int i = 0; i < count; i++) {
        if (!*paths[i])
            return wb_cli_usage("%s is empty", word);
    }
    return -1;
}

/* Whether `letter` is a short option with an argument. */
static bool takes_argument(const GOptionEntry *options, char letter)
{
    for (; options->long_name; options++) {
        if (options->short_name == letter)
            return options->arg != G_OPTION_ARG_NONE;
    }
    return false;
}

/* GOption accepts "-l 5" only; people write "-l5", too. */
static char **split_short_options(const GOptionEntry *options, char **arguments)
{
    GPtrArray *split = g_ptr_array_new();
    bool options_end = false;

    for (; *arguments; arguments++) {
        const char *at = *arguments;

        options_end = options_end || strcmp(at, "--") == 0;
        if (!options_end && at[0] == '-' && at[1] && at[1] != '-' && at[2] && takes_argument(options, at[1])) {
            g_ptr_array_add(split, g_strndup(at, 2));
            g_ptr_array_add(split, g_strdup(at + 2 + (at[2] == '=')));
        } else {
            g_ptr_array_add(split, g_strdup(at));
            /* The next word is its value, whatever it looks like. */
            if (!options_end && at[0] == '-' && at[1] && at[1] != '-' && !at[2] &&
                takes_argument(options, at[1]) && arguments[1])
                g_ptr_array_add(split, g_strdup(*++arguments));
        }
    }
    g_ptr_array_add(split, NULL);
    return (char **)g_ptr_array_free(split, FALSE);
}

/* The option that `argument` is, with its value, here or in `next`; NULL: another one. */
static const GOptionEntry *option_of(const GOptionEntry *options, const char *argument, const char *next,
                                     const char **value)
{
    for (; options->long_name; options++) {
        g_autofree char *name = g_strdup_printf("--%s", options->long_name);
        size_t length = strlen(name);

        *value = next;
        if (strcmp(argument, name) == 0 ||
            (options->short_name && argument[0] == '-' && argument[1] == options->short_name && !argument[2]))
            return options;
        *value = argument + length + 1;
        if (strncmp(argument, name, length) == 0 && argument[length] == '=')
            return options;
    }
    return NULL;
}

/* For a number that is none, GOption says only "Cannot parse integer value". -1: nothing is wrong with numbers. */
static int complain_of_number(const GOptionEntry *options, char **arguments)
{
    for (; *arguments && strcmp(*arguments, "--") != 0; arguments++) {
        const char *value = NULL;
        const GOptionEntry *option = option_of(options, *arguments, arguments[1], &value);
        char *end;

        if (!option || !value || (option->arg != G_OPTION_ARG_INT && option->arg != G_OPTION_ARG_INT64))
            continue;
        g_ascii_strtoll(value, &end, 0);
        if (end > value && !*end)
            continue;
        if (*value == '~' && strspn(value + 1, "0123456789") == strlen(value + 1) && value[1])
            return wb_cli_usage("--%s takes a number: %s", option->long_name, value + 1);
        return wb_cli_usage("--%s takes a number, such as 1; '%s' is none", option->long_name, value);
    }
    return -1;
}

/* Also if the arguments are wrong, which the caller wants to know as JSON, too. */
static bool wants_json(char **arguments)
{
    for (; *arguments && strcmp(*arguments, "--") != 0; arguments++) {
        if (strcmp(*arguments, "--json") == 0)
            return true;
    }
    return false;
}

static bool is_stopped(void *data)
{
    (void)data;
    return wb_cli_interrupted();
}

static void add_progress(void *data, uint64_t files, uint64_t bytes)
{
    (void)data;
    wb_progress_add(files, bytes);
}

static const struct wb_watch watch = {.stopped = is_stopped, .progress = add_progress};

int wb_cli_begin(const struct wb_cli *cli, const GOptionEntry *options, int *argc, char ***argv)
{
    static char **paths, **arguments, **split;
    static gboolean version;
    const GOptionEntry mounting[] = {
        {"store", 0, 0, G_OPTION_ARG_FILENAME, &store_option,
         "The store of a tree that is not mounted is DIR, as with wayback -o store=DIR", "DIR"},
        WB_CLI_END,
    };
    const GOptionEntry common[] = {
        {"version", 0, 0, G_OPTION_ARG_NONE, &version, "Print the version and exit", NULL},
        {G_OPTION_REMAINING, 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &paths, NULL, cli->arguments},
        WB_CLI_END,
    };
    g_autoptr(GOptionContext) context = g_option_context_new(NULL);
    g_autofree char *description = NULL;
    g_autoptr(GError) error = NULL;
    g_auto(GStrv) given = NULL;
    int count, r;

    the_cli = cli;
    called = name_of_call(cli, (*argv)[0]);
    description = describe(cli);
    wb_watch_set(&watch);
    prepare_process();
    whole_name = cli->verb ? g_strdup_printf("%s %s", called, cli->verb) : called;
    g_set_prgname(whole_name);
    g_option_context_set_summary(context, cli->summary);
    g_option_context_set_description(context, description);
    g_option_context_add_main_entries(context, options, NULL);
    if (!cli->plain)
        g_option_context_add_main_entries(context, mounting, NULL);
    g_option_context_add_main_entries(context, common, NULL);
    split = split_short_options(options, *argv);
    given = g_strdupv(split);
    if (wants_json(given))
        wb_json_start(cli->writes_stream ? stderr : stdout);
    if (!g_option_context_parse_strv(context, &split, &error)) {
        r = g_error_matches(error, G_OPTION_ERROR, G_OPTION_ERROR_BAD_VALUE) ? complain_of_number(options, given) : -1;
        return r >= 0 ? r : wb_cli_usage("%s", error->message);
    }
    if (version) {
        printf("%s (Wayback) %s\n", cli->name, WAYBACK_VERSION);
        return WB_EXIT_OK;
    }
    count = paths ? (int)g_strv_length(paths) : 0;
    r = check_paths(cli, paths, count);
    if (r >= 0)
        return r;
    *argc = count + 1;
    arguments = g_new0(char *, (gsize)count + 2);
    arguments[0] = (char *)cli->name;
    if (count > 0)
        memcpy(arguments + 1, paths, (size_t)count * sizeof(char *));
    *argv = arguments;
    return -1;
}

/* What a signal interrupted; "": nothing that the user has to know. */
static char *text_of_stop(void)
{
    const char *done = stopped ? stopped : "the output is incomplete";

    return g_strconcat(*done ? "stopped; " : "", done, NULL);
}

int wb_cli_end(void)
{
    g_autofree char *stop = text_of_stop();
    bool complete;
    int error;

    if (interrupted && *stop)
        wb_json_error("stopped", NULL, stop);
    wb_json_finish();
    complete = fflush(stdout) == 0 && !ferror(stdout);
    error = errno;

    /* A user who leaves the pager has seen enough: no error. */
    if (!wb_pager_end() && !complete) {
        if (error != EPIPE)
            wb_cli_fail(NULL, "standard output: %s", wb_errno_text(error));
        return WB_EXIT_FAILED;
    }
    if (interrupted) {
        if (*stop)
            wb_cli_warn(NULL, "%s", stop);
        return 128 + interrupted;
    }
    return failed ? WB_EXIT_FAILED : WB_EXIT_OK;
}

const char *wb_cli_store(void)
{
    static char *store;

    if (store_option && !store)
        store = wb_path_absolute(store_option);
    return store ? store : store_option;
}

const char *wb_cli_name(void)
{
    return called ? called : "wayback";
}

/* `kind`: of the error for JSON; NULL: it is a warning. */
static void say(const char *kind, const char *path, const char *format, va_list arguments)
{
    g_autofree char *shown = path ? wb_text_printable(path) : NULL;
    g_autofree char *bytes = g_strdup_vprintf(format, arguments);
    g_autofree char *text = wb_text_printable(bytes);

    if (kind)
        wb_json_error(kind, path, text);
    /* In order with what was printed, also where both go to one file. */
    fflush(stdout);
    fprintf(stderr, "%s: %s%s%s\n", wb_cli_name(), shown ? shown : "", shown ? ": " : "", text);
}

int wb_cli_fail(const char *path, const char *format, ...)
{
    va_list arguments;

    failed = true;
    va_start(arguments, format);
    say("failed", path, format, arguments);
    va_end(arguments);
    return WB_EXIT_FAILED;
}

void wb_cli_warn(const char *path, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    say(NULL, path, format, arguments);
    va_end(arguments);
}

int wb_cli_usage(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    say("usage", NULL, format, arguments);
    va_end(arguments);
    fprintf(stderr, "Try '%s --help'.\n", whole_name ? whole_name : wb_cli_name());
    return the_cli && the_cli->usage_status ? the_cli->usage_status : WB_EXIT_USAGE;
}

bool wb_cli_interrupted(void)
{
    return interrupted != 0;
}

bool wb_cli_confirm(const char *path, const char *question, const char *left)
{
    char answer[16] = "";

    if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO)) {
        wb_cli_fail(path, "%s: this cannot be undone, and there is no terminal for a confirmation; use -y", left);
        return false;
    }
    fprintf(stderr, "%s: %s? [y/N] ", wb_cli_name(), question);
    if (!fgets(answer, sizeof(answer), stdin) || wb_cli_interrupted())
        answer[0] = '\0';
    if (g_ascii_tolower(answer[0]) == 'y')
        return true;
    if (!wb_cli_interrupted())
        wb_cli_fail(path, "%s", left);
    return false;
}

void wb_cli_stopped(const char *format, ...)
{
    va_list arguments;

    g_free(stopped);
    va_start(arguments, format);
    stopped = g_strdup_vprintf(format, arguments);
    va_end(arguments);
}

void wb_cli_last_words(void (*last_words)(void))
{
    last_words_function = last_words;
}
