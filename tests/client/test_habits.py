"""Messages for habits from other libraries, against a server without a scheduler."""

import asyncio
import re
from pathlib import Path

import pytest

import ullage
from ullage.client import spec
from ullage.model.error import InvalidRequest


@pytest.fixture
def client(fake):
    with ullage.connect() as client:
        yield client


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_gpus": 1}, 'num_gpus: 1 is not valid: did you mean resreq="cpu=1,mem=1g,gpu=1"?'),
        ({"max_retries": 3}, "did you mean retries?"),
        ({"n_jobs": 3}, "did you mean max_instances?"),
        ({"runtime_env": {}}, "did you mean environment and working_directory?"),
        ({"initializer": print}, "did you mean ullage.Executor(initializer=..., initargs=...)?"),
        ({"environment": ["A=1"]}, "environment: ['A=1'] is not valid: a mapping of texts is needed"),
        ({"environment": {"A": 1}}, "environment: 'A' is not valid: it and its value (int) have to be texts"),
        ({"resreq": {"num_gpus": 1}}, "resreq: 'num_gpus=1' is not valid: did you mean gpu?"),
    ],
)
def test_an_option_of_another_library_is_refused_with_ours(fake, client, options, message):
    with pytest.raises(InvalidRequest, match=re.escape(message)):
        client.session(**options)
    assert fake.sessions == {}


def test_every_word_of_others_is_none_of_ours():
    assert not spec._OTHER_WORDS.keys() & spec.SessionOptions.__annotations__.keys()


def test_a_working_directory_may_be_a_path(fake, client, tmp_path):
    client.session("s", working_directory=Path(tmp_path))
    assert fake.sessions["s"].spec.setup.working_directory == str(tmp_path)


def test_common_data_that_is_too_large_is_refused_before_it_is_sent(fake, client, monkeypatch):
    monkeypatch.setattr(spec, "MOST_COMMON_DATA", 10)
    message = "common_data: it has 11 bytes, at most 10 can be sent; bind a larger value to the function: functools"
    with pytest.raises(InvalidRequest, match=re.escape(message)):
        client.session(common_data=bytes(11))
    client.session("s", common_data=bytes(10))
    assert list(fake.sessions) == ["s"]


def test_objects_of_the_client_are_not_sent_and_the_message_says_what_to_do(fake, client):
    with client.session() as session, ullage.Executor() as pool:
        future = session.submit(abs, -1)
        for value, message in (
            (
                future,
                "argument 1 (TaskFuture) cannot be sent to an executor: it belongs to this process; send its",
            ),
            (session, "open it inside the function, with ullage.connect().open_session(NAME)"),
            (client, "call ullage.connect() inside the function"),
            (pool, "create one inside the function"),
        ):
            with pytest.raises(InvalidRequest, match=re.escape(message)) as refused:
                session.submit(str, value)
            assert "send plain data" not in str(refused.value)


def test_objects_of_the_asyncio_client_are_not_sent_either(fake):
    async def main():
        async with ullage.aconnect() as client, client.session() as session:
            future = session.submit(abs, -1)
            for value, message in (
                (future, "send its result: await it first"),
                (session, "ullage.connect().open_session(NAME)"),
                (client, "call ullage.connect() inside the function"),
            ):
                with pytest.raises(InvalidRequest, match=re.escape(message)):
                    await session.submit(str, value)

    asyncio.run(main())


class Unloadable:
    """It can be pickled, and not unpickled."""

    def __reduce__(self):
        return int, ("no number",)


def test_a_result_that_cannot_be_unpickled_is_said_to_be_one(client):
    with client.session() as session, pytest.raises(ValueError, match="no number") as failed:
        session.submit(Unloadable).result()
    assert failed.value.__notes__ == ["task 1 succeeded, but its result cannot be unpickled in this process"]


def test_what_is_not_open_yet_says_how_to_open_it(fake):
    async def main():
        unopened = ullage.aconnect()
        with pytest.raises(AttributeError, match="nodes: it is not open yet; use `async with`, or `await` it first"):
            unopened.nodes  # noqa: B018  # it raises
        async with unopened as client:
            with pytest.raises(AttributeError, match="submit: it is not open yet"):
                client.session().submit  # noqa: B018  # it raises

    asyncio.run(main())


def test_a_closed_asyncio_client_refuses_requests_as_the_blocking_one_does(fake):
    async def main():
        async with ullage.aconnect() as client:
            session = await client.session()
        for call in (client.nodes, session.status):
            with pytest.raises(ullage.Conflict, match="the client is closed; create a new one") as refused:
                await call()
            assert refused.value.code == "client-closed"

    asyncio.run(main())
