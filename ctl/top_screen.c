#include "ctl/top_screen.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ncurses.h>

#include "ctl/escape.h"
#include "lib/base/mem.h"

static const char *const help[] = {
    "d a r n   sort by depth, age, rate, name",
    "up, down  choose a next hop (k, j: the same)",
    "h         hold the mail of that next hop",
    "u         release it",
    "f         flush: try it now",
    "?         this text, and away with it",
    "q         quit",
    "",
    "NODE       what it says last, or away: it does not answer this host",
    "BEAT       since its relay's last beat; WHOLE: it holds all that was promised",
    "DONE/S     mails that its relay is done with; FLIGHT: that it is delivering",
    "ENTRIES    each mail once; AGE: of the oldest; IN/S, OUT/S: stored, removed",
    "REPLICA TO REPLICA  changes that wait; AGE is how far the second is behind",
};

const char *top_screen_open(void)
{
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
        return "there is no terminal; --once prints it once";
    setlocale(LC_CTYPE, "");
    if (!newterm(NULL, stdout, stdin))
        return "this terminal is not known (TERM); --once prints it once";
    cbreak();
    noecho();
    nodelay(stdscr, TRUE);
    keypad(stdscr, TRUE);
    curs_set(0);
    return NULL;
}

void top_screen_close(void)
{
    endwin();
}

/* What is cut off is not missed: lines are made so that the most important comes first. */
static void put_line(int y, const char *text, attr_t how)
{
    struct buf shown = {0};
    escape_for_terminal(&shown, text, strlen(text), "");
    attron(how);
    mvaddnstr(y, 0, shown.data ? shown.data : "", COLS);
    for (int x = getcurx(stdscr); how & A_REVERSE && getcury(stdscr) == y && x < COLS; x++)
        addch(' ');
    attroff(how);
    buf_free(&shown);
}

static attr_t look_of(enum top_list list, const json_t *row, bool selected)
{
    const char *state = json_string_value(json_object_get(row, "state"));
    if (selected)
        return A_REVERSE;
    if (list == TOP_NODES && state && strcmp(state, "alive") && strcmp(state, "replica"))
        return A_BOLD;
    return json_object_get(row, "error") ? A_BOLD : A_NORMAL;
}

/* From y on, at most that many lines with the heading. Returns the next free one. */
static int draw_list(enum top_list list, const struct top_picture *p, int y, int lines)
{
    const json_t *rows = json_object_get(p->rows, top_list_name(list));
    size_t n = json_array_size(rows), room = lines > 1 ? (size_t)lines - 1 : 0, first = 0;
    bool choose = list == TOP_HOPS;
    if (!room)
        return y;
    char *heading = top_heading(list);
    put_line(y++, heading, A_UNDERLINE);
    free(heading);
    if (choose && p->selected >= room)
        first = p->selected - room + 1;
    for (size_t i = first; i < n && i < first + room; i++) {
        const json_t *row = json_array_get(rows, i);
        char *line = top_line(list, row);
        put_line(y++, line, look_of(list, row, choose && i == p->selected));
        free(line);
    }
    return y;
}

static int size_of(enum top_list list, const struct top_picture *p)
{
    return (int)json_array_size(json_object_get(p->rows, top_list_name(list)));
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Nodes and replicas get what they need, up to a third each; next hops and lanes the rest. */
static void draw_lists(const struct top_picture *p)
{
    int left = LINES - 3, y = 2;
    int replicas = size_of(TOP_REPLICAS, p) ? least(size_of(TOP_REPLICAS, p) + 2, left / 3) : 0,
        nodes = least(size_of(TOP_NODES, p) + 1, left / 3 + 1);
    left -= replicas + nodes + 2;
    int hops = least(size_of(TOP_HOPS, p) + 1, left - least(size_of(TOP_LANES, p) + 1, left / 2));
    y = draw_list(TOP_NODES, p, y, nodes) + 1;
    y = draw_list(TOP_HOPS, p, y, hops) + 1;
    y = draw_list(TOP_LANES, p, y, LINES - 1 - replicas - y);
    if (replicas)
        draw_list(TOP_REPLICAS, p, y + 1, least(replicas - 1, LINES - 2 - y));
}

void top_screen_draw(const struct top_picture *p)
{
    erase();
    put_line(0, p->title, A_BOLD);
    for (size_t i = 0; p->help && i < sizeof help / sizeof *help; i++)
        put_line((int)i + 2, help[i], A_NORMAL);
    if (!p->help)
        draw_lists(p);
    put_line(LINES - 1, p->message, A_NORMAL);
    refresh();
}

int top_screen_key(void)
{
    int key = getch();
    switch (key) {
    case ERR: return TOP_KEY_NONE;
    case KEY_UP: return TOP_KEY_UP;
    case KEY_DOWN: return TOP_KEY_DOWN;
    case KEY_RESIZE: return TOP_KEY_RESIZE;
    default: return key;
    }
}
