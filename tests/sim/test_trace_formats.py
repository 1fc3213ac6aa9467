"""Files of traces become nodes and tasks; errors name their place."""

import pytest

from tests.sim.traces import OPENB_NODES, OPENB_PODS, openb_nodes, write_csv
from ullage.model.error import InvalidRequest
from ullage.model.request import ResourceRequirement
from ullage.sim.formats import read_nodes, read_queues, read_tasks
from ullage.sim.trace import TraceKind, kind_of

GIB = 1 << 30


def test_an_openb_node_has_cards_of_its_model_with_the_memory_that_is_known(tmp_path):
    nodes = read_nodes(openb_nodes(tmp_path / "nodes.csv"))
    assert [len(node.gpus) for node in nodes] == [2, 4, 8, 1, 0]
    assert (nodes[0].cpu_milli, nodes[0].memory_bytes) == (32000, 128 * GIB)
    assert [(gpu.model, gpu.vram_bytes) for gpu in nodes[0].gpus] == [("T4", 16 * GIB)] * 2
    assert {gpu.vram_bytes for gpu in nodes[1].gpus} == {None}


def test_the_request_of_an_openb_pod_is_that_of_its_line(tmp_path):
    rows = [
        ("a", 1000, 1024, 0, 0, "", "LS", "Running", 5, 105, 10),
        ("b", 2000, 1024, 1, 460, "T4|G2", "LS", "Running", 5, "", ""),
        ("c", 3000, 1024, 1, 1000, "T4", "BE", "Failed", 5, 20, ""),
        ("d", 4000, 1024, 8, 1000, "", "LS", "Running", 6, 7, 6),
    ]
    tasks = read_tasks(write_csv(tmp_path / "pods.csv", OPENB_PODS, rows))
    asked = ["cpu=1,mem=1g", "cpu=2,mem=1g,gpu=0.46,gpu_model=T4|G2", "cpu=3,mem=1g,gpu=1,gpu_model=T4"]
    assert [task.requirement for task in tasks] == [
        *map(ResourceRequirement.from_string, asked),
        ResourceRequirement.of(4, "1g", 8),
    ]
    assert [task.duration_s for task in tasks] == [95, None, 15, 1]
    assert [kind_of(task.requirement) for task in tasks] == [
        TraceKind.CPU_ONLY,
        TraceKind.SHARE,
        TraceKind.ONE,
        TraceKind.WIDE,
    ]


def test_a_node_of_the_spot_fleet_has_its_cards_and_never_lacks_memory(tmp_path):
    columns = ("gpu_model", "gpu_capacity_num", "cpu_num", "node_name")
    rows = [("H800", 8, 192, 7), ("GPU-series-1", 1, 96, 8)]
    named, anonymous = read_nodes(write_csv(tmp_path / "nodes.csv", columns, rows))
    assert (named.name, named.cpu_milli, len(named.gpus), named.gpus[0].vram_bytes) == ("7", 192_000, 8, 80 * GIB)
    assert [(gpu.model, gpu.vram_bytes) for gpu in anonymous.gpus] == [("GPU-series-1", None)]
    assert named.memory_bytes > 1 << 50
    with pytest.raises(InvalidRequest, match="another node"):
        read_nodes(write_csv(tmp_path / "twice.csv", columns, [rows[0], rows[0]]))


def test_a_pod_list_without_models_and_times_is_read(tmp_path):
    rows = [("a", 1000, 1024, 1, 1000)]
    (task,) = read_tasks(write_csv(tmp_path / "pods.csv", OPENB_PODS[:5], rows))
    assert (task.requirement, task.duration_s) == (ResourceRequirement.of(1, "1g", 1), None)


def test_nodes_and_requests_of_the_own_format_are_read_as_csv_and_json_lines(tmp_path):
    nodes = tmp_path / "nodes.csv"
    nodes.write_text("name,cpu,memory,gpus,gpu_model,gpu_memory\nn1,64,512g,8,A100,80g\nn2,0.5,1g,0,,\n")
    first, second = read_nodes(nodes)
    assert (first.cpu_milli, len(first.gpus), first.gpus[0].vram_bytes) == (64000, 8, 80 * GIB)
    assert (second.cpu_milli, second.gpus) == (500, ())

    table, lines = tmp_path / "requests.csv", tmp_path / "requests.jsonl"
    table.write_text(
        "name,request,arrival_s,duration_s,queue,priority,count\n"
        'a,"cpu=1,gpu=0.5,gpu_model=A100",10,60.5,team,-3,1\nb,gpu=8,,,,,2\n'
    )
    lines.write_text(
        '{"name":"a","request":"cpu=1,gpu=0.5,gpu_model=A100","arrival_s":10,"duration_s":60.5,"queue":"team",'
        '"priority":-3}\n\n{"name":"b","request":"gpu=8","count":2,"queue":null}\n'
    )
    assert read_tasks(table) == read_tasks(lines)
    a, b = read_tasks(table)
    assert (a.arrival_s, a.duration_s, a.queue, a.priority, a.units) == (10.0, 60.5, "team", -3, 1)
    assert (b.arrival_s, b.duration_s, b.queue, b.priority, b.units) == (0.0, None, "default", 0, 2)


@pytest.mark.parametrize(
    ("read", "header", "line", "message"),
    [
        (read_tasks, "request,prioriti", '"gpu=1",3', "column prioriti: .* did you mean priority"),
        (read_tasks, "request,duration", '"gpu=1",3', "column duration: .* did you mean duration_s"),
        (
            read_nodes,
            "name,cpu,memory,gpus,gpu_modell",
            "n,1,1g,1,A100",
            "column gpu_modell: .* did you mean gpu_model",
        ),
        (read_queues, "queue,weights", "a,3", "column weights: .* did you mean weight"),
        (read_nodes, "name,cpu,memory,gpus", "n,1,16,1", "column memory: '16' is not valid: write a size"),
    ],
)
def test_a_misspelt_column_and_a_size_without_a_unit_are_refused(tmp_path, read, header, line, message):
    path = tmp_path / "rows.csv"
    path.write_text(f"{header},other\n{line},1\n")
    with pytest.raises(InvalidRequest, match=message):
        read(path)


def test_a_philly_job_is_a_gang_of_equal_units_on_its_virtual_cluster(tmp_path):
    rows = [
        ("2017-10-09 07:01:55", 66.0, 1, 66.0, "vc1"),
        ("2017-10-09 07:02:00", 10, 24, 240, "vc2"),
        ("2017-10-09 07:01:00", 10, 12, 120, "vc2"),
    ]
    columns = ("timestamp", "duration", "num_gpus", "gpu_time", "cluster")
    tasks = read_tasks(write_csv(tmp_path / "jobs.csv", columns, rows))
    assert [(task.requirement.gpu_count, task.units, task.queue) for task in tasks] == [
        (1, 1, "vc1"),
        (8, 3, "vc2"),
        (6, 2, "vc2"),
    ]
    assert tasks[1].arrival_s - tasks[0].arrival_s == 5.0


@pytest.mark.parametrize(
    ("columns", "row", "message"),
    [
        (OPENB_PODS[:5], ("a", "many", 1, 0, 0), ["line 2", "cpu_milli", "'many'", "write a whole number"]),
        (OPENB_PODS[:5], ("a", 1, 1, 1, 1001), ["line 2", "gpu_milli", "'1001'", "1000"]),
        (OPENB_PODS[:5], ("a", 1, 1, 2, 0), ["line 2", "gpu_milli", "'0'", "1 to 1000"]),
        (OPENB_PODS[:5], ("a", 0, 0, 0, 0), ["line 2", "resreq", "request at least one"]),
        (OPENB_PODS[:5], ("a", 1, 1, 0), ["line 2", "5 columns are needed"]),
        (OPENB_PODS, ("a", 1, 1, 0, 0, "", "", "", 5, 3, 4), ["line 2", "deletion_time", "'3'", "cannot end"]),
        (("request", "arrival_s"), ("cpu=x", 0), ["line 2", "request", "'cpu=x'", "number of cores"]),
        (("request", "arrival_s"), ("cpu=1", -1), ["line 2", "arrival_s", "'-1'", "seconds"]),
        (("request", "arrival_s"), ("cpu=1", "nan"), ["line 2", "arrival_s", "'nan'", "seconds"]),
        (("request", "priority"), ("cpu=1", "high"), ["line 2", "priority", "'high'", "whole number"]),
        (("request", "count"), ("cpu=1", 0), ["line 2", "count", "'0'", "1 unit"]),
        (("request",), ("",), ["line 2", "request", "needed"]),
        (("timestamp", "duration", "num_gpus", "cluster"), ("noon", 1, 1, "a"), ["timestamp", "'noon'", "2017"]),
        (("timestamp", "duration", "num_gpus", "cluster"), ("2017-10-09", 1, 0, "a"), ["num_gpus", "1 card"]),
        (("a", "b"), (1, 2), ["line 1", "'a,b'", "no known format"]),
    ],
)
def test_the_error_for_a_bad_task_has_file_line_column_value_and_fix(tmp_path, columns, row, message):
    path = write_csv(tmp_path / "tasks.csv", columns, [row])
    with pytest.raises(InvalidRequest) as raised:
        read_tasks(path)
    assert raised.value.code == "invalid-trace"
    for words in (str(path), *message):
        assert words in raised.value.message


@pytest.mark.parametrize(
    ("columns", "rows", "message"),
    [
        (OPENB_NODES, [("a", 1, 1, 1, "T4"), ("a", 1, 1, 1, "T4")], ["line 3", "sn", "'a'", "another node"]),
        (OPENB_NODES, [("a", 1, 1, 129, "T4")], ["line 2", "gpu", "'129'", "128"]),
        (("name", "cpu", "memory", "gpus"), [("a", "-1", "1g", 1)], ["line 2", "cpu", "'-1'", "cores"]),
        (("name", "cpu", "memory", "gpus"), [("a", "1", "lots", 1)], ["line 2", "memory", "'lots'", "size"]),
        (("name", "cpu", "memory", "gpus"), [("a", "1", "", 1)], ["line 2", "memory", "256g"]),
        (("name", "cpu", "memory", "gpus"), [], ["no rows"]),
    ],
)
def test_the_error_for_a_bad_node_names_its_line(tmp_path, columns, rows, message):
    path = write_csv(tmp_path / "nodes.csv", columns, rows)
    with pytest.raises(InvalidRequest) as raised:
        read_nodes(path)
    for words in (str(path), *message):
        assert words in raised.value.message


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "is empty"), (b'{"request": "cpu=1"}\n{oops\n', "line 2"), (b"\xff\xfe\x00", "cannot be read")],
)
def test_a_file_that_is_no_list_is_refused(tmp_path, content, message):
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(content)
    with pytest.raises(InvalidRequest, match=message):
        read_tasks(path)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InvalidRequest, match=r"missing\.csv cannot be read"):
        read_tasks(tmp_path / "missing.csv")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("a", "", 1, 0), ("a", "", 1, 0)], ["line 3", "queue", "another queue has this name"]),
        ([("a", "b", 1, 0), ("b", "", 1, 0)], ["line 2", "parent", "'b'", "an earlier line"]),
        ([("a", "", 0, 0)], ["line 2", "weight", "1 to 1000"]),
        ([("a b", "", 1, 0)], ["line 2", "queue"]),
        ([("a", "", 1, "high")], ["line 2", "priority", "'high'"]),
    ],
)
def test_the_error_for_a_bad_queue_names_its_line(tmp_path, rows, message):
    with pytest.raises(InvalidRequest) as error:
        read_queues(write_csv(tmp_path / "queues.csv", ("queue", "parent", "weight", "priority"), rows))
    for word in message:
        assert word in str(error.value)
