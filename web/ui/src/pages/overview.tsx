import { ViewBar } from '../components/viewbar';

export default function Page() {
  return <ViewBar />;
}
